"""Which files a script writes and which it runs: one that it does both to holds commands that nobody read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import basename

_WRITERS = frozenset(["tee", "cp", "mv", "ln", "install", "dd", "curl", "wget", "sed", "ed", "patch"])
_HOOKS = ".git/"
"""Git runs what stands there."""


@dataclass(slots=True)
class OwnFiles:
    """Files are compared by their last name, for where the shell stands and what a copy is put into is often not known."""

    _written: set[str] = field(default_factory=set)
    _run: set[str] = field(default_factory=set)
    _writes_hooks: bool = False

    def writes(self, name: str) -> None:
        self._written.add(basename(name))
        self._writes_hooks |= _HOOKS in name

    def calls(self, command: str, path: str, args: Iterable[str]) -> None:
        """`command`: its bare name, `path`: the name as it is called."""
        if "/" in path:
            self.runs(path)
        if command not in _WRITERS:
            return
        for arg in args:
            for name in (arg, arg.partition("=")[2], arg[2:] if arg.startswith("-") else ""):
                self.writes(name)

    def runs(self, name: str) -> None:
        self._run.add(basename(name))

    @property
    def runs_what_it_writes(self) -> bool:
        return self._writes_hooks or bool((self._written & self._run) - {""})
