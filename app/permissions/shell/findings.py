"""What the reader finds in a script: the commands that it runs, as the rules evaluate them, and the paths outside the project."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from posixpath import basename

from app.permissions.rules import Readability, Subject
from app.permissions.shell.programs import StartedProgram, runs_nothing
from app.permissions.shell.syntax import MAX_NODES, holds_code
from app.permissions.shell.words import Word, has_glob, text_of, unescaped
from app.permissions.spellings import always_pattern, spellings

_WRITERS = frozenset(["tee", "cp", "mv", "ln", "install", "dd", "curl", "wget", "sed", "ed", "patch"])
_GIT_DIRECTORY = ".git/"
"""Git runs programs that files in it name: hooks, filters."""

_SUBSCRIPT_EVALUATORS = "declare typeset local export readonly let test [ printf read unset wait"
_EVALUATES_SUBSCRIPTS = frozenset(_SUBSCRIPT_EVALUATORS.split())
_VERBATIM = re.compile(r"-j\$|\"?\$\(cat <<-?\s*['\"\\]?\w")
"""Harmless expansions: a number (`make -j$(nproc)`), or a here-document whose text is in the command itself."""


class TooComplex(Exception):
    """The script is too long or nests too deep to be read."""


@dataclass(slots=True)
class Findings:
    """`subjects`: the simple commands. `outside`: real paths, or text as typed. `loose`: text that some command may run.
    `has_run`: an earlier command has run and may have removed directories.

    A file that the script both writes and runs holds commands that nobody read. Files are compared by their last name, because
    the folder that a copy is put into is often unknown.
    """

    subjects: list[Subject] = field(default_factory=list)
    outside: dict[str, None] = field(default_factory=dict)
    loose: dict[str, None] = field(default_factory=dict)
    is_unparsable: bool = False
    has_run: bool = False
    _nodes: int = 0
    _written: set[str] = field(default_factory=set)
    _run: set[str] = field(default_factory=set)
    _writes_git_directory: bool = False

    def count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise TooComplex

    def add_unreadable(self, text: str) -> None:
        self.subjects.append(Subject(text, readability="unreadable"))

    def add_loose(self, text: str) -> None:
        """Adds text that some command may run, with quotes removed as the shell does."""
        self.loose[re.sub(r"\\(?=.)|\\\n|['\"]", "", text)] = None

    def report(self, paths: Iterable[str]) -> None:
        self.outside.update(dict.fromkeys(paths))

    def writes(self, path: str) -> None:
        self._written.add(basename(path))
        self._writes_git_directory |= _GIT_DIRECTORY in path

    def runs(self, path: str) -> None:
        self._run.add(basename(path))

    def calls(self, program: str, path: str, args: Iterable[str]) -> None:
        """`program`: the bare name. `path`: the name as the command has it."""
        if "/" in path:
            self.runs(path)
        for arg in args if program in _WRITERS else ():
            for name in (arg, arg.partition("=")[2], arg[2:] if arg.startswith("-") else ""):
                self.writes(name)

    @property
    def runs_what_it_writes(self) -> bool:
        return self._writes_git_directory or bool((self._written & self._run) - {""})


def flattened(words: Sequence[Word]) -> list[Word]:
    """One word for each field."""
    return [word if len(word.fields) == 1 else Word(unescaped(one), (one,)) for word in words for one in word.fields]


def build_subject(words: Sequence[Word], flat: Sequence[Word], started: StartedProgram, redirections: str) -> Subject:
    """Commands that the arguments name are denied as if they ran: nobody knows whether the program runs them."""
    text, plain = text_of(words), tuple(word.plain for word in flat)
    others = spellings(plain, reorder=not started.commands)
    if redirections:
        others.append(f"{text} {redirections}")
    for named in started.named:
        others += [named.pattern, *named.spellings]
    distinct = tuple(dict.fromkeys(other for other in others if other != text))
    is_inert = runs_nothing(plain[0].lower(), plain[1:])
    readability = _readability(words[0], flat, started, is_inert)
    always = None if readability == "unreadable" else always_pattern([word.text for word in words])
    return Subject(text, distinct, readability, () if is_inert else plain, always=always)


def _readability(name: Word, flat: Sequence[Word], started: StartedProgram, is_inert: bool) -> Readability:
    is_expanded = re.search(r"\$(?!['\"])|`", name.text) is not None
    if is_expanded or not flat[0].is_known or (has_glob(flat[0].fields[0]) and name.text != "["):
        return "unreadable"
    if flat[0].value in _EVALUATES_SUBSCRIPTS and any(holds_code(word.text) for word in flat[1:]):
        return "unreadable"
    may_run_unknown = not is_inert and any(not word.is_known and not _VERBATIM.match(word.text) for word in flat[1:])
    may_run_unknown |= any(named.readability == "unreadable" for named in started.named)
    return "foreign" if started.readability == "readable" and may_run_unknown else started.readability
