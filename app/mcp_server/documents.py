"""Transcripts and diffs as texts, within bounds: they go into the context of a model."""

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """Some of a text: where it begins in the whole, of `size` characters."""

    text: str
    begin: int
    size: int


async def window(pieces: AsyncGenerator[bytes, None], limit: int, offset: int | None = None) -> Window:
    """At most `limit` characters of a text that comes in pieces of UTF-8: from `offset` on, or its last ones. No more is held."""
    decode, held, begin, size = getincrementaldecoder("utf-8")("replace").decode, deque[str](), offset or 0, 0
    async with aclosing(pieces):
        async for piece in pieces:
            text = decode(piece)
            held.append(text if offset is None else text[max(offset - size, 0) : max(offset + limit - size, 0)])
            size += len(text)
            while offset is None and size - begin - len(held[0]) >= limit:
                begin += len(held.popleft())
    text = "".join(held)
    return Window(text, begin, size) if offset is not None else Window(text[-limit:], size - len(text[-limit:]), size)


def diff_text(diffs: list[dict[str, Any]]) -> str:
    """What the session has changed. A file without a patch is binary, or of a session that was imported."""
    if not diffs:
        return "No files were changed."
    return "\n".join(diff.get("patch") or f"{diff['file']}: changed, without a diff" for diff in diffs)
