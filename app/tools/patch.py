"""Parses the patch format of apply_patch into typed changes, and applies an update to the text of a file.

*** Begin Patch
*** Add File: a.txt            lines of `+text`
*** Update File: b.txt         `@@ a line to look for`, then lines of ` kept`, `-removed`, `+added`
*** Move to: c.txt             optional, right below Update File
*** Delete File: d.txt
*** End Patch
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.tools.replace import JoinedLines, with_newlines

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File:", "*** Delete File:", "*** Update File:", "*** Move to:"
_END_OF_FILE = "*** End of File"
_HEREDOC = re.compile(r"\A(?:cat\s+)?<<-?\s*(['\"]?)(\w+)\1[^\n]*\n(?P<body>.*)\n\2\s*\Z", re.DOTALL)

_MAX_SEARCHED = 10_000_000_000
"""Characters of a file, times the pieces of a patch that are looked for in it."""

_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
        "\u2026": "...",
    }
)


class PatchError(Exception):
    """The patch is invalid or does not match the file."""


class PatchLine(NamedTuple):
    """`kind`: a space for a kept line, `-` for a removed one, `+` for an added one."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """`contexts` are searched in order, each after the one before; then the lines are."""

    contexts: list[str] = field(default_factory=list)
    lines: list[PatchLine] = field(default_factory=list)
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class AddFile:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class DeleteFile:
    path: str


@dataclass(frozen=True, slots=True)
class UpdateFile:
    path: str
    move_to: str | None
    chunks: list[Chunk]


PatchChange = AddFile | DeleteFile | UpdateFile


def parse(text: str) -> list[PatchChange]:
    """Raises PatchError with the line of the patch that is invalid."""
    return list(_PatchParser(_envelope(text)).changes())


def _envelope(text: str) -> list[str]:
    text = text.replace("\r\n", "\n").strip()
    heredoc = _HEREDOC.match(text)
    lines = (heredoc["body"].strip() if heredoc else text).split("\n")
    marks = [line.strip() for line in lines]
    if _BEGIN not in marks or _END not in marks[marks.index(_BEGIN) :]:
        raise PatchError(f"the patch must start with a line `{_BEGIN}` and end with a line `{_END}`")
    last = len(marks) - 1 - marks[::-1].index(_END)
    return lines[marks.index(_BEGIN) + 1 : last]


class _PatchParser:
    """A recursive descent parser. Line numbers in errors count from the line after Begin Patch."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def changes(self) -> Iterator[PatchChange]:
        for line in self._take(lambda _: True):
            if line.startswith(_ADD):
                yield AddFile(self._path(line, _ADD), self._added_text())
            elif line.startswith(_DELETE):
                yield DeleteFile(self._path(line, _DELETE))
            elif line.startswith(_UPDATE):
                yield self._update(self._path(line, _UPDATE))
            elif line.strip():
                raise self._unreadable(line, "expected a line that adds, deletes or updates a file")

    def _take(self, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The next lines, as long as `wanted` is true of them."""
        while self._at < len(self._lines) and wanted(self._lines[self._at]):
            self._at += 1
            yield self._lines[self._at - 1]

    def _path(self, line: str, header: str) -> str:
        path = line.removeprefix(header).strip()
        if not path:
            raise self._unreadable(line, "no file is named")
        return path

    def _unreadable(self, line: str, why: str) -> PatchError:
        return PatchError(f"line {self._at} of the patch: {why}: {line!r}")

    def _added_text(self) -> str:
        added = []
        for line in self._take(lambda line: not line.startswith("***")):
            if line.startswith("+"):
                added.append(line[1:] + "\n")
            elif line.strip():
                raise self._unreadable(line, "every line of a new file starts with +")
        return "".join(added)

    def _update(self, path: str) -> UpdateFile:
        move = next(self._take(lambda line: line.startswith(_MOVE)), None)
        move_to = None if move is None else self._path(move, _MOVE)
        chunks = [chunk for chunk in self._chunks() if any(line.kind != " " for line in chunk.lines)]
        if not chunks and move_to is None:
            raise PatchError(f"the update of {path} changes nothing")
        return UpdateFile(path, move_to, chunks)

    def _chunks(self) -> Iterator[Chunk]:
        before = None
        while self._at != before:
            before = self._at
            contexts = [line.removeprefix("@@").strip() for line in self._take(lambda line: line.startswith("@@"))]
            lines = [self._patch_line(line) for line in self._take(lambda line: not line.startswith(("***", "@@")))]
            at_end = next(self._take(lambda line: line.rstrip() == _END_OF_FILE), None) is not None
            yield Chunk([context for context in contexts if context], lines, at_end)

    def _patch_line(self, line: str) -> PatchLine:
        """An empty line counts as a kept line whose leading space is missing."""
        if line[:1] not in ("", " ", "-", "+"):
            raise self._unreadable(line, "a line of a change starts with a space, - or +")
        return PatchLine(line[:1] or " ", line[1:])


def apply_chunks(content: str, chunks: Sequence[Chunk], name: str) -> str:
    """The updated text. Kept lines stay as they are in the file. Added lines take the file's line ending; a chunk of added lines
    alone goes to the end of the file. Raises PatchError if a chunk is not found; `name` is the file's name in the error."""
    if len(content) * sum(1 + len(chunk.contexts) for chunk in chunks) > _MAX_SEARCHED:
        raise PatchError(f"{name} is too large for a patch in so many pieces")
    ending = "\r\n" if content.count("\r\n") * 2 > content.count("\n") else "\n"
    unterminated = content != "" and not content.endswith("\n")
    lines = with_newlines(content + ending if unterminated else content)
    target = _PatchedText(name, [line.rstrip("\r\n") for line in lines])
    result: list[str] = []
    at_end: list[str] = []
    done = 0
    for chunk in chunks:
        if not _expected(chunk.lines):
            target.below(chunk.contexts, done)
            at_end += [line.text + ending for line in chunk.lines]
            continue
        start, patched = target.find(chunk, done)
        result += lines[done:start]
        done = start
        for kind, text in patched:
            if kind == "+":
                result.append(text + ending)
                continue
            if kind == " ":
                result.append(lines[done])
            done += 1
    whole = "".join(result + lines[done:] + at_end)
    return whole.removesuffix(ending) if unterminated else whole


def _plain_punctuation(text: str) -> str:
    return text.translate(_TYPOGRAPHIC).strip()


_LOOSER: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, _plain_punctuation)


class _PatchedText:
    """The lines of a file, as they are and normalised in several ways."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self._name = name
        self._lines = lines
        self._seen_through: dict[Callable[[str], str], JoinedLines] = {}

    def below(self, contexts: Sequence[str], start: int) -> int:
        """The line after the last of the contexts."""
        for context in contexts:
            above = self._seek([context], start, at_end=False)
            if above is None:
                raise PatchError(f"the context line {context!r} was not found in {self._name}")
            start = above + 1
        return start

    def find(self, chunk: Chunk, start: int) -> tuple[int, list[PatchLine]]:
        """Where the chunk begins, and its lines."""
        start = self.below(chunk.contexts, start)
        for lines in (chunk.lines, _without_blank_tail(chunk.lines)):
            expected = _expected(lines)
            found = self._seek(expected, start, at_end=chunk.at_end) if expected else None
            if found is not None:
                return found, lines
        raise PatchError(f"these lines were not found in {self._name}:\n" + "\n".join(_expected(chunk.lines)))

    def _seek(self, wanted: list[str], start: int, *, at_end: bool) -> int | None:
        """The first match from `start`, or at the end of the file if `at_end`: first exactly, then ever more loosely."""
        tail = len(self._lines) - len(wanted)
        for normalise in _LOOSER:
            ours, theirs = self._normalised_lines(normalise), [normalise(line) for line in wanted]
            for first in [tail, start] if at_end and tail >= start else [start]:
                if (found := next(ours.runs(theirs, first), None)) is not None:
                    return found
        return None

    def _normalised_lines(self, normalise: Callable[[str], str]) -> JoinedLines:
        if normalise not in self._seen_through:
            self._seen_through[normalise] = JoinedLines([normalise(line) for line in self._lines])
        return self._seen_through[normalise]


def _expected(lines: Sequence[PatchLine]) -> list[str]:
    return [line.text for line in lines if line.kind != "+"]


def _without_blank_tail(lines: list[PatchLine]) -> list[PatchLine]:
    """Drops blank lines before the next header: they often only separate sections of the patch."""
    end = len(lines)
    while end and lines[end - 1] == PatchLine(" ", ""):
        end -= 1
    return lines[:end]
