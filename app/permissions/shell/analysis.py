"""Finds out what a shell command would do before it runs: the commands that it runs, and the paths outside the project.

The script is parsed with tree-sitter, never by pattern. Each simple command is a subject of the rules. A command inside a
command (`env X=1 rm y`, `bash -c '…'`, `$(…)`, `find -exec`) is a subject of its own, so that rules about it hold.
What cannot be read plainly (`$CMD x`, `curl … | sh`, a syntax error) is marked and at least asked about.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from app.permissions.paths import Boundary, PathCheck
from app.permissions.rules import Subject
from app.permissions.shell.findings import Findings, TooComplex
from app.permissions.shell.reader import ShellReader
from app.permissions.shell.words import Variables, Word, escaped
from app.permissions.wildcard import is_plain


@dataclass(frozen=True, slots=True)
class ShellAnalysis:
    """`subjects`: the simple commands. `outside`: real paths, or the text as typed for a path that is known only at run time.
    `unparsable`: parts of the command could not be read, and all of it is the last of `outside`."""

    subjects: list[Subject]
    outside: tuple[str, ...]
    unparsable: bool = False

    @property
    def patterns(self) -> list[str]:
        return list(dict.fromkeys(subject.pattern for subject in self.subjects))

    @property
    def always(self) -> list[str]:
        return list(dict.fromkeys(subject.always for subject in self.subjects if subject.always))

    @property
    def readable_outside(self) -> tuple[str, ...]:
        """Without texts that are known only at run time."""
        read = self.outside[:-1] if self.unparsable else self.outside
        return tuple(path for path in read if Path(path).is_absolute())


def always_patterns(paths: Iterable[str]) -> list[str]:
    """What a reply of `always` to a request for these paths allows: each one's folder with all below it. Nothing for a text that
    is known only at run time, nor for a path with a wildcard, which as a pattern would allow more than the user saw."""
    named = (path for path in paths if os.path.isabs(path) and is_plain(path))  # noqa: PTH117
    return list(dict.fromkeys(pattern for path in named for pattern in _folder_patterns(path)))


def _folder_patterns(path: str) -> Iterator[str]:
    """Only the path itself for one directly in `/`: `/*` would be every file of the machine."""
    is_directory = os.path.isdir(path)  # noqa: PTH112
    folder = path if is_directory else os.path.dirname(path)  # noqa: PTH120
    if is_directory or folder == "/":
        yield path
    if folder != "/":
        yield f"{folder}/*"


def analyse(command: str, cwd: Path, boundary: Boundary, environment: Mapping[str, str]) -> ShellAnalysis:
    """`cwd`: where the command starts; reported if it is outside. `environment`: the command's variables."""
    whole = Subject(command, readability="unreadable")
    variables = Variables(environment)
    findings = Findings()
    start = Word(str(cwd), (escaped(str(cwd)),))
    findings.report(PathCheck(boundary, variables.lookup, (str(cwd),)).outside_of_target(start))
    try:
        is_understood = ShellReader(boundary, variables, (str(cwd),), findings).read(command)
    except TooComplex:
        return ShellAnalysis([whole], (command,), unparsable=True)
    subjects = list(dict.fromkeys(findings.subjects))
    if findings.is_unparsable or not is_understood:
        return ShellAnalysis([whole, *subjects], (*findings.outside, command), unparsable=True)
    unread = [whole] if findings.runs_what_it_writes else []
    loose = "\n".join(findings.loose)
    may_run_it = [replace(subject, text=loose) if subject.words else subject for subject in subjects]
    return ShellAnalysis([*unread, *may_run_it], tuple(findings.outside))
