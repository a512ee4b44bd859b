"""How much another server may send in one answer (a model provider, an MCP server, a page that a configuration names), and how
many values a JSON text may have, and how deep: a small text can take gigabytes, and a deep one cannot be rendered.

Bytes are counted as they come over the network, whichever client reads them. Clients ask for uncompressed answers (IDENTITY):
half a megabyte can unpack to a gigabyte, before anybody can count.
"""

import codecs
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from itertools import chain
from typing import Any

import orjson
from pydantic_core import to_json

DEEPEST = 200
"""Pydantic writes no value that is nested more than 255 deep, and a body stands inside other values."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""One without an end goes to the end of the text: the next one would be looked for at each of its quotes."""


def has_more_values(body: bytes, most: int) -> bool:
    """Every value but the first follows a comma or an opening bracket. Those in strings are left out only if that matters."""
    if _separators(body, 0, len(body)) <= most:
        return False
    values = start = 0
    for strings, string in enumerate(_STRING.finditer(body)):
        values += _separators(body, start, string.start())
        start = string.end()
        if values > most or strings > 2 * most:
            return True
    return values + _separators(body, start, len(body)) > most


def _separators(body: bytes, start: int, end: int) -> int:
    return body.count(b",", start, end) + body.count(b"[", start, end) + body.count(b"{", start, end)


def is_deeper(value: Any, levels: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels + 1):
        inner_values = chain.from_iterable(outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for inner in inner_values if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for invalid JSON. Half of a surrogate pair becomes U+FFFD, because it cannot be stored; a byte order mark
    is left out."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        data = text.encode(errors="replace") if isinstance(text, str) else text
        return orjson.loads(whole_characters(data.removeprefix(codecs.BOM_UTF8)))


_CHARACTER = re.compile(rb"\\(?:\\|u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..))")
"""An escaped backslash, a pair of surrogates, or half of one, which is replaced."""


def whole_characters(text: bytes) -> bytes:
    """JSON without halves of surrogate pairs, which JavaScript writes where it has cut a text, and some servers send in a chunk
    of its own."""
    return _CHARACTER.sub(lambda found: rb"\ufffd" if found[1] else found[0], text) if b"\\u" in text else text


def plain_json(value: Any, deepest: int = DEEPEST) -> Any:
    """A copy that later changes of the original do not touch. Raises ValueError for a value that cannot be JSON: an object
    without a form there, half of a surrogate pair, a value that contains itself, or one nested too deep."""
    plain = json.loads(to_json(value, inf_nan_mode="null"))
    if is_deeper(plain, deepest):
        raise ValueError(f"it is nested more than {deepest} deep")
    return plain


MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
"""Of an error's body; the rest is not read."""
MAX_VALUES = 100_000
"""JSON values in one event or body: megabytes of tiny ones take gigabytes when they are read."""
IDENTITY = {"Accept-Encoding": "identity"}
EVENT_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
"""An empty line, the end of an event, in each of the ways that the format allows."""


class AnswerPassedLimit(Exception):
    """The message says which limit."""


async def whole_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """What has come of a stream of events, up to an empty line each time; at the end what is left, an event without one. A stream
    as a whole may have any size. Raises AnswerPassedLimit."""
    rest = bytearray()
    async for chunk in chunks:
        if not rest and chunk.endswith(EVENT_ENDS):  # as most servers send their events
            yield chunk
            continue
        sought = max(len(rest) - 2, 0)
        rest += chunk
        if end := _end_of_events(rest, sought):
            yield bytes(rest[:end])
            del rest[:end]
        if len(rest) > MAX_EVENT_BYTES:
            raise AnswerPassedLimit(f"An event of the stream has more than {MAX_EVENT_BYTES} bytes")
    if rest:
        yield bytes(rest)


def _end_of_events(text: bytearray, sought: int) -> int:
    """0 without one."""
    return max(at + len(mark) if (at := text.rfind(mark, sought)) >= 0 else 0 for mark in EVENT_ENDS)


def require_identity(headers: Mapping[str, str]) -> None:
    """Raises AnswerPassedLimit for an answer that is compressed although it should not be."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerPassedLimit(f"The answer is compressed ({encoding[:40]}), which was not asked for")


def require_few_values(text: bytes) -> None:
    """`text`: JSON. Raises AnswerPassedLimit."""
    if len(text) > MAX_VALUES and has_more_values(text, MAX_VALUES):
        raise AnswerPassedLimit(f"It has more than {MAX_VALUES} values")


async def body_of(chunks: AsyncIterable[bytes], most: int = 0) -> bytes:
    """The whole body. `most`: instead of MAX_BODY_BYTES. Raises AnswerPassedLimit."""
    body, most = bytearray(), most or MAX_BODY_BYTES
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise AnswerPassedLimit(f"The answer has more than {most} bytes")
    return bytes(body)
