"""What the reader finds in a script: the commands that it runs, and the paths outside the project."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import basename

from app.permission.rules import Subject
from app.permission.shell.syntax import MAX_NODES

_WRITERS = frozenset(["tee", "cp", "mv", "ln", "install", "dd", "curl", "wget", "sed", "ed", "patch"])
_HOOKS = ".git/"
"""Git runs the hooks in this directory."""


class TooComplex(Exception):
    """The script is too long or nests too deep to be read."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """One simple command. `always`: what a reply of `always` may allow; None where that allows what the user has not seen."""

    subject: Subject
    always: str | None


@dataclass(slots=True)
class Findings:
    """`outside`: real paths, or text as typed. `has_run`: a command stands before, which may have removed directories. `loose`:
    text beside the words of commands.

    A file that the script both writes and runs holds commands that nobody read. Files are compared by their last name: the
    folder that a copy is put into is often unknown.
    """

    invocations: list[Invocation] = field(default_factory=list)
    outside: dict[str, None] = field(default_factory=dict)
    loose: dict[str, None] = field(default_factory=dict)
    is_unparsable: bool = False
    has_run: bool = False
    _nodes: int = 0
    _written: set[str] = field(default_factory=set)
    _run: set[str] = field(default_factory=set)
    _writes_hooks: bool = False

    def count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise TooComplex

    def add(self, invocation: Invocation) -> None:
        if invocation not in self.invocations[-50:]:
            self.invocations.append(invocation)

    def add_unreadable(self, text: str) -> None:
        self.add(Invocation(Subject(text, readability="unreadable"), always=None))

    def say(self, text: str) -> None:
        """As the shell reads it, without quotes."""
        self.loose[re.sub(r"\\(?=.)|\\\n|['\"]", "", text)] = None

    def report(self, paths: Iterable[str]) -> None:
        self.outside.update(dict.fromkeys(paths))

    def writes(self, path: str) -> None:
        self._written.add(basename(path))
        self._writes_hooks |= _HOOKS in path

    def runs(self, path: str) -> None:
        self._run.add(basename(path))

    def calls(self, program: str, path: str, args: Iterable[str]) -> None:
        """`program`: the bare name, `path`: the name as it is called."""
        if "/" in path:
            self.runs(path)
        for arg in args if program in _WRITERS else ():
            for name in (arg, arg.partition("=")[2], arg[2:] if arg.startswith("-") else ""):
                self.writes(name)

    @property
    def runs_what_it_writes(self) -> bool:
        return self._writes_hooks or bool((self._written & self._run) - {""})
