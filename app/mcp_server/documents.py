"""Transcripts and diffs as texts, within bounds: they go into the context of a model."""

from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any


class Window:
    """At most `limit` characters of a text that comes in pieces of UTF-8: from `offset` on, or its last ones. `begin`: where they
    stand in the whole of `size` characters."""

    def __init__(self, offset: int | None, limit: int) -> None:
        self._offset = offset
        self._limit = limit
        self.text = ""
        self.begin = offset or 0
        self.size = 0

    async def read(self, pieces: AsyncGenerator[bytes, None]) -> None:
        decoder = getincrementaldecoder("utf-8")("replace")
        async with aclosing(pieces):
            async for piece in pieces:
                self._take(decoder.decode(piece))

    def _take(self, text: str) -> None:
        before, self.size = self.size, self.size + len(text)
        if self._offset is None:
            self.text = (self.text + text)[-self._limit :]
            self.begin = self.size - len(self.text)
        else:
            self.text = (self.text + text[max(self._offset - before, 0) :])[: self._limit]


def diff_text(diffs: list[dict[str, Any]]) -> str:
    """What the session has changed. A file without a patch is binary, or of a session that was imported."""
    if not diffs:
        return "No files were changed."
    return "\n".join(diff.get("patch") or f"{diff['file']}: changed, without a diff" for diff in diffs)
