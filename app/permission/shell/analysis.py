"""What a shell command would do, read before it runs: the commands it runs, and the paths it touches outside the project.

The script is parsed with tree-sitter, never by pattern. Each simple command is one invocation; a command inside a command
(`env X=1 rm y`, `bash -c '…'`, `$(…)`, `find -exec`) is an invocation of its own beside the outer one, so a rule about it holds.
What can't be read (`$CMD x`, `curl … | sh`, a syntax error) is marked, and at least asked about.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.permission.boundary import Boundary
from app.permission.rules import Subject
from app.permission.shell.invocation import Invocation
from app.permission.shell.paths import always_outside
from app.permission.shell.reader import ShellReader, Undone
from app.permission.shell.syntax import parse
from app.permission.shell.variables import Variables
from app.permission.shell.words import has_reserved_characters


@dataclass(frozen=True, slots=True)
class ShellAnalysis:
    """`outside`: real paths, or the text as typed for a path only the run will show. `unparsable`: not all understood."""

    invocations: tuple[Invocation, ...]
    outside: tuple[str, ...]
    unparsable: bool = False

    @property
    def subjects(self) -> list[Subject]:
        return [invocation.subject for invocation in self.invocations]

    @property
    def patterns(self) -> list[str]:
        return list(dict.fromkeys(invocation.subject.pattern for invocation in self.invocations))

    @property
    def always(self) -> list[str]:
        return list(dict.fromkeys(invocation.always for invocation in self.invocations if invocation.always))

    @property
    def outside_always(self) -> list[str]:
        found = (always_outside(path) for path in self.outside)
        return list(dict.fromkeys(pattern for pattern in found if pattern))


def analyse(command: str, cwd: Path, boundary: Boundary, environment: Mapping[str, str] | None = None) -> ShellAnalysis:
    """`cwd`: where the command starts; it is reported when it lies outside. `environment`: what the command will be given."""
    variables = os.environ if environment is None else environment
    read = _read(command, cwd, boundary, Variables(variables))
    if read is not None and read.variables.opaque and read.variables.was_used:
        read = _read(command, cwd, boundary, Variables(variables, opaque=True))
    if read is None:
        return ShellAnalysis((_not_understood(command),), (command,), unparsable=True)
    if read.is_unparsable:
        return ShellAnalysis((_not_understood(command), *read.invocations), (*read.outside, command), unparsable=True)
    unread = [_not_understood(command)] if read.files.runs_what_it_writes else []
    return ShellAnalysis((*unread, *read.invocations), tuple(read.outside))


def _not_understood(command: str) -> Invocation:
    return Invocation(Subject(command, sight="unseen"), always=None)


def _read(command: str, cwd: Path, boundary: Boundary, variables: Variables) -> ShellReader | None:
    """None: nothing of it can be read."""
    if has_reserved_characters(command):
        return None
    root = parse(command)
    if root is None:
        return None
    reader = ShellReader(boundary, variables, cwd)
    try:
        reader.read(root)
    except Undone:
        return None
    return reader
