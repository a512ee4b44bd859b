"""Text search by regular expression."""

import asyncio
import base64
import orjson
import os
from app.schema.errors import BadRequest
from app.schema.project import MatchedText
from app.schema.project import Submatch
from app.schema.project import TextMatch
from app.tool import search
from app.tool.base import ToolError
from app.tool.search import SearchPlace
from contextlib import suppress
from typing import Any


MATCHES_PER_FILE = 10
MAX_MATCHES = 1000
MAX_LINE_BYTES = 8000
"""Of a longer line the beginning is shown, with the matches in it."""
SECONDS = 10.0
"""After this time the search returns what it has found."""


async def find_text(place: SearchPlace, pattern: str) -> list[TextMatch]:
    """By path and line. Symbolic links are not followed. Raises BadRequest for a pattern that is no regular expression of rg, and
    for a directory that is another one by now."""
    if "\0" in pattern:
        raise BadRequest("A pattern cannot contain a NUL character", ["pattern"], pattern)
    found, may_show = list[TextMatch](), place.judge()

    def take(line: bytes) -> bool:
        report = orjson.loads(line)
        if report["type"] == "match" and may_show(_name(report)):
            found.append(_match(report["data"]))
        return len(found) < MAX_MATCHES

    search.binary()  # that it is missing is not the pattern's fault
    arguments = ["--json", "--no-follow", f"--max-count={MATCHES_PER_FILE}", "--glob=!.git", f"--regexp={pattern}", "--", "."]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await search.search(place, arguments, end=b"\n", take=take, timeout=2 * SECONDS)
    except ToolError as error:
        raise BadRequest(f"The pattern cannot be searched for: {error}", ["pattern"], pattern) from error
    return sorted(found, key=lambda match: (match.path.text, match.line_number))


def _name(report: Any) -> str:
    return os.fsdecode(_bytes(report["data"]["path"]).removeprefix(b"./"))


def _match(data: Any) -> TextMatch:
    line = _bytes(data["lines"])
    return TextMatch(
        path=_matched_text(_bytes(data["path"]).removeprefix(b"./")),
        lines=_matched_text(line[:MAX_LINE_BYTES]),
        line_number=data["line_number"],
        absolute_offset=data["absolute_offset"],
        submatches=[_submatch(part) for part in data["submatches"] if part["end"] <= MAX_LINE_BYTES],
    )


def _submatch(part: Any) -> Submatch:
    return Submatch(match=_matched_text(_bytes(part["match"])), start=part["start"], end=part["end"])


def _bytes(value: dict[str, str]) -> bytes:
    """rg gives what is not UTF-8 in base64."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def _matched_text(value: bytes) -> MatchedText:
    return MatchedText(text=value.decode("utf-8", "replace"))
