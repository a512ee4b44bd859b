"""Search for files and directories by name (fuzzy, for mentions), and for text by regular expression."""

import asyncio
import base64
import heapq
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Literal

import orjson

from app.schema.errors import BadRequest
from app.schema.project import MatchedText, Submatch, TextMatch
from app.tools import search
from app.tools.base import ToolError, ToolTimeout
from app.tools.search import SearchPlace
from app.util.project_files import HeldDirectory

MAX_FILES = 200_000
SECONDS = 10.0
"""A listing or a search that takes longer ends with what it has found so far."""

MATCHES_PER_FILE = 10
MAX_MATCHES = 1000
MAX_LINE_BYTES = 8000
"""Of a longer line the beginning is shown, with the matches in it."""
_SCATTERED = 4

EntryKind = Literal["all", "file", "directory"]


FileNames = Mapping[EntryKind, Sequence[str]]
"""Paths relative to the directory, sorted, directories first; a directory's ends with `/`. Hidden ones are included."""

_Listed = tuple[HeldDirectory, tuple[str, ...]]
"""The directory, and the paths in it that are hidden from the client."""


class FileSearch:
    """`fresh_seconds`: how long a listing is used; people type a letter every 100 ms or so."""

    def __init__(self, fresh_seconds: float = 2.0) -> None:
        self._fresh_seconds = fresh_seconds
        self._listings: dict[_Listed, asyncio.Task[FileNames]] = {}

    async def find(self, place: SearchPlace, query: str, kind: EntryKind, limit: int) -> list[str]:
        """Best match first; without a query the first names, directories before files. Raises BadRequest if another directory
        stands there by now."""
        key = place.root, place.hidden()
        if key not in self._listings:
            self._listings[key] = asyncio.create_task(list_names(place))
            self._listings[key].add_done_callback(lambda listing: self._forget_later(key, listing))
        # A listing whose client disconnected is still what the next one waits for.
        names = await asyncio.shield(self._listings[key])
        return await asyncio.to_thread(best, query, names[kind], limit)

    def _forget_later(self, key: _Listed, listing: asyncio.Task[FileNames]) -> None:
        """A failed listing is forgotten at once."""
        seconds = 0 if listing.cancelled() or listing.exception() else self._fresh_seconds
        asyncio.get_running_loop().call_later(seconds, self._listings.pop, key, None)


async def list_names(place: SearchPlace) -> FileNames:
    """Honours ignore files. Leaves symbolic links out: a target in the project has a name of its own there. Raises BadRequest."""
    files, may_show = list[str](), place.file_filter()

    def take(piece: bytes) -> bool:
        if may_show(os.fsdecode(piece)):
            files.append(piece.decode("utf-8", "replace"))
        return len(files) < MAX_FILES

    arguments = ["--files", "--no-follow", "--glob=!.git"]
    try:
        with suppress(ToolTimeout):
            await search.search(place, arguments, end=b"\0", take=take, timeout=SECONDS)
    except ToolError as error:
        raise BadRequest(str(error), ["directory"]) from error
    return await asyncio.to_thread(_file_names, files)


def _file_names(files: Sequence[str]) -> FileNames:
    nearest = {PurePosixPath(folder) for file in files if (folder := file.rpartition("/")[0])}
    directories = sorted({f"{folder}/" for near in nearest for folder in (near, *near.parents) if folder.name})
    return {"file": sorted(files), "directory": directories, "all": [*directories, *sorted(files)]}


def best(query: str, names: Sequence[str], limit: int) -> list[str]:
    """Names that have every word's letters, in order, in any case. Hidden names come after equally good ones that are not hidden,
    unless the query names a hidden one."""
    words = query.lower().split()
    prefers_hidden = query.strip().startswith(".") or "/." in query
    if not words:
        return heapq.nsmallest(limit, names, key=_is_hidden)
    lowered = {name: name.lower() for name in names}
    for word in words:
        lowered = _with_letters(word, lowered)

    def rank(name: str) -> tuple[bool, bool, float, int, str]:
        badness = [_badness(word, lowered[name]) for word in words]
        return max(badness) >= _SCATTERED, not prefers_hidden and _is_hidden(name), sum(badness), len(name), name

    return heapq.nsmallest(limit, lowered, key=rank)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def _with_letters(word: str, lowered: dict[str, str]) -> dict[str, str]:
    from rapidfuzz import process
    from rapidfuzz.distance import LCSseq

    hits = process.extract(word, lowered, scorer=LCSseq.similarity, processor=None, score_cutoff=len(word), limit=None)
    return {name: low for low, _, name in hits}


def _badness(word: str, path: str) -> float:
    """0 for the exact name; then, rising: names that begin with the word, names with it, paths with it, scattered letters."""
    from rapidfuzz import fuzz

    name = PurePosixPath(path).name
    if word in (name, path):
        return 0
    if name.startswith(word) or path.startswith(word):
        return 1
    if word in name:
        return 2
    return 3 if word in path else _SCATTERED + 1 - fuzz.partial_ratio(word, path) / 100


async def find_text(place: SearchPlace, pattern: str) -> list[TextMatch]:
    """The matches by path and line. Does not follow symbolic links. Raises BadRequest for a pattern that is no regular expression
    of rg, and if another directory stands there by now."""
    if "\0" in pattern:
        raise BadRequest("A pattern cannot contain a NUL character", ["pattern"], pattern)
    found, may_show = list[TextMatch](), place.file_filter()

    def take(line: bytes) -> bool:
        report = orjson.loads(line)
        if report["type"] == "match" and may_show(os.fsdecode(_bytes(report["data"]["path"]).removeprefix(b"./"))):
            found.append(_match(report["data"]))
        return len(found) < MAX_MATCHES

    search.binary()  # that rg is missing is not the pattern's fault
    arguments = ["--json", "--no-follow", f"--max-count={MATCHES_PER_FILE}", "--glob=!.git", f"--regexp={pattern}", "--", "."]
    try:
        with suppress(ToolTimeout):
            await search.search(place, arguments, end=b"\n", take=take, timeout=SECONDS)
    except ToolError as error:
        raise BadRequest(f"The pattern cannot be searched for: {error}", ["pattern"], pattern) from error
    return sorted(found, key=lambda match: (match.path.text, match.line_number))


def _match(data: Any) -> TextMatch:
    line = _bytes(data["lines"])
    return TextMatch(
        path=_matched_text(_bytes(data["path"]).removeprefix(b"./")),
        lines=_matched_text(line[:MAX_LINE_BYTES]),
        line_number=data["line_number"],
        absolute_offset=data["absolute_offset"],
        submatches=[
            Submatch(match=_matched_text(_bytes(part["match"])), start=part["start"], end=part["end"])
            for part in data["submatches"]
            if part["end"] <= MAX_LINE_BYTES
        ],
    )


def _bytes(value: dict[str, str]) -> bytes:
    """rg prints text that is not UTF-8 in base64."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def _matched_text(value: bytes) -> MatchedText:
    return MatchedText(text=value.decode("utf-8", "replace"))
