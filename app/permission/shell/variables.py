"""What is known of a script's variables before it runs.

A variable is known when the script never sets it (then the environment's value holds) or when it is set exactly once, by a
statement that certainly runs, and is read after that. Everything else only the run will show.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.permission.shell.words import Word, is_known, node_text, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node

_SHELL_SETS = {"PWD", "OLDPWD", "REPLY", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID", "SHLVL", "OPTARG", "OPTIND"}
_SHELL_SETS |= {"_", "IFS"}


@dataclass(slots=True)
class Variables:
    """`opaque`: something in the script may set any variable (`eval`, `read`, `source`)."""

    environment: Mapping[str, str]
    opaque: bool = False
    times_set: dict[str, int] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)
    was_used: bool = False

    def count(self, root: "Node") -> None:
        for name in _names_set(root):
            self.times_set[name] = self.times_set.get(name, 0) + 1

    @contextmanager
    def of_child_process(self) -> Iterator[None]:
        """What the outer script sets may or may not have been exported."""
        before = self.times_set, self.values
        self.times_set, self.values = dict.fromkeys(self.times_set, 2), {}
        yield
        self.times_set, self.values = before

    def lookup(self, name: str) -> list[str] | None:
        if name == "HOME" and name not in self.times_set and name in self.environment:
            return [self.environment[name]]
        self.was_used = True
        if self.opaque or name in _SHELL_SETS or name.isdigit() or "IFS" in self.times_set:
            return None
        if name in self.times_set:
            return self.values.get(name) if self.times_set[name] == 1 else None
        return [self.environment[name]] if name in self.environment else None

    def is_set(self, name: str) -> bool:
        return name in self.times_set or name in self.environment

    def set(self, name: str, value: Word) -> None:
        if self.times_set.get(name) == 1 and all(map(is_known, value.fields)):
            self.values[name] = [unquoted(one) for one in value.fields]


def _names_set(root: "Node") -> Iterator[str]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.named_children)
        if node.type == "variable_assignment":
            yield node_text(node).partition("=")[0].removesuffix("+").partition("[")[0]
        elif node.type in {"for_statement", "c_style_for_statement"} and (variable := node.child_by_field_name("variable")):
            yield node_text(variable)


def surely_runs(assignment: "Node") -> bool:
    """It stands at the top of the script, or first in a list there, and is no `+=`."""
    if "+=" in node_text(assignment)[: node_text(assignment).find("=") + 1]:
        return False
    child, parent = assignment, assignment.parent
    while parent is not None and parent.type in {"variable_assignments", "declaration_command", "list"}:
        if parent.type == "list" and parent.children[0] != child:
            return False
        child, parent = parent, parent.parent
    return parent is not None and parent.type == "program"
