"""How much another server may send in one answer: a model provider, an MCP server, a page that a configuration names.

Bytes are counted as they come over the network, whichever client reads them. Clients ask for answers that are not compressed
(IDENTITY): half a megabyte can unpack to a gigabyte, and is unpacked before anybody can count.
"""

from collections.abc import AsyncIterable, Mapping

from app.util.json_bounds import has_more_values

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
"""Of the body of an answer that is an error; the rest is not read."""
MAX_VALUES = 100_000
"""JSON values of one event or body: megabytes of tiny ones take gigabytes when they are read."""
IDENTITY = {"Accept-Encoding": "identity"}
_LINE_ENDS = (b"\n\n", b"\n\r\n")


class AnswerPassedLimit(Exception):
    """The message says which limit."""


class BodyBytes:
    def __init__(self, most: int = 0) -> None:
        """`most`: in place of MAX_BODY_BYTES."""
        self._most = most or MAX_BODY_BYTES
        self._count = 0

    def add(self, chunk: bytes) -> None:
        """Raises AnswerPassedLimit."""
        self._count += len(chunk)
        if self._count > self._most:
            raise AnswerPassedLimit(f"The answer has more than {self._most} bytes")


class EventBytes:
    """Of the event of a stream that is coming: what was sent since the last empty line. A stream as a whole may have any size."""

    def __init__(self) -> None:
        self._count = 0
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        """Raises AnswerPassedLimit."""
        seen = self._tail + chunk
        end = max(at + len(mark) if (at := seen.rfind(mark)) >= 0 else 0 for mark in _LINE_ENDS)
        self._count = len(seen) - end if end else self._count + len(chunk)
        self._tail = seen[-2:]
        if self._count > MAX_EVENT_BYTES:
            raise AnswerPassedLimit(f"An event of the stream has more than {MAX_EVENT_BYTES} bytes")


def require_identity(headers: Mapping[str, str]) -> None:
    """Raises AnswerPassedLimit for an answer that is compressed although none such was asked for."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerPassedLimit(f"The answer is compressed ({encoding[:40]}), which was not asked for")


def require_few_values(text: bytes) -> None:
    """Of JSON. Raises AnswerPassedLimit."""
    if len(text) > MAX_VALUES and has_more_values(text, MAX_VALUES):
        raise AnswerPassedLimit(f"It has more than {MAX_VALUES} values")


async def body_of(chunks: AsyncIterable[bytes], most: int = 0) -> bytes:
    """The whole body. Raises AnswerPassedLimit."""
    count, body = BodyBytes(most), bytearray()
    async for chunk in chunks:
        count.add(chunk)
        body += chunk
    return bytes(body)
