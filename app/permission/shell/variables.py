"""The values of a script's variables, as far as they are known before it runs.

A variable is known when the script sets it exactly once, by a statement that certainly runs, and reads it after that. HOME is
known from the environment.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.permission.shell.syntax import in_background, node_text, nodes_of, parent_type, statement_of
from app.permission.shell.words import Word, is_known, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node


class Variables:
    """`is_contradicted`: a value that was looked up may differ at run time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.is_contradicted = False
        self._environment = environment
        self._is_opaque = False
        self._was_used = False
        self._times_set = Counter[str]()
        self._values: dict[str, list[str]] = {}

    def in_child_process(self) -> "Variables":
        """The child knows HOME alone: the script may or may not export its variables."""
        return Variables({} if self._is_opaque or self._times_set["HOME"] else self._environment)

    def count(self, root: "Node") -> None:
        """Counts the assignments below a node, before any is read."""
        for node in nodes_of(root):
            if node.type == "variable_assignment":
                self._times_set[re.split(r"\+?=|\[", node_text(node))[0]] += 1
            elif node.type in {"for_statement", "c_style_for_statement"} and (name := node.child_by_field_name("variable")):
                self._times_set[node_text(name)] += 1

    def forget_all(self) -> None:
        """The script contains a command that may set any variable."""
        self._is_opaque = True
        self.is_contradicted |= self._was_used

    def lookup(self, name: str) -> list[str] | None:
        if self._is_opaque or self._times_set["IFS"] or self._times_set[name] > 1:
            return None
        is_home = name == "HOME" and not self._times_set[name] and name in self._environment
        values = [self._environment[name]] if is_home else self._values.get(name)
        self._was_used |= values is not None
        return values

    def may_be_set(self, name: str) -> bool:
        return self._is_opaque or self._times_set[name] > 0 or name in self._environment

    def set(self, name: str, value: Word) -> None:
        self._values.pop(name, None)
        if all(map(is_known, value.fields)):
            self._values[name] = [unquoted(one) for one in value.fields]


def always_runs(assignment: "Node") -> bool:
    """Whether the assignment is at the top level of the script, or first in a list there, and is not a `+=`."""
    top = statement_of(assignment, {"variable_assignments", "declaration_command", "list"}, {"&&", "||"})
    return assignment.children[1].type == "=" and not in_background(top) and parent_type(top) == "program"
