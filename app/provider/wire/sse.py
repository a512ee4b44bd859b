"""Decodes server-sent events of model providers: the `data` of each event, without names, ids and comments."""

import json
from typing import Any

import orjson

_FIELDS = (b"event:", b"id:", b"retry:", b":")
_STRAY_LIMIT = 8192


class SseDecoder:
    """`stray` collects lines that are not part of an event stream (an HTML page, a JSON error), for the error message."""

    def __init__(self) -> None:
        self.stray = b""
        self._rest = bytearray()
        """An incomplete line."""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that this chunk completes."""
        self._rest += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return [data for line in lines if (data := self._line(line.removesuffix(b"\r")))]

    def close(self) -> bytes | None:
        """The data of a last event without an empty line after it."""
        self._line(bytes(self._rest).removesuffix(b"\r"))
        return self._dispatch()

    def _line(self, line: bytes) -> bytes | None:
        if not line:
            return self._dispatch()
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif not line.startswith(_FIELDS):
            self.stray = (self.stray + line + b"\n")[:_STRAY_LIMIT]
        return None

    def _dispatch(self) -> bytes | None:
        data = b"\n".join(self._data)
        self._data.clear()
        return data or None


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for invalid JSON. Half of a surrogate pair, which some servers send in a chunk of its own, becomes
    U+FFFD, because it cannot be stored."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        lenient = json.dumps(json.loads(text), ensure_ascii=False)
        return orjson.loads(lenient.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
