"""A hook of the SDKs' HTTP client that bounds what a model provider sends before an SDK reads it.

The SDKs gather an event whatever its size, read JSON of any number of values, and pass on halves of characters, which cannot be
stored. So they get each event when it is whole and has been looked at.
"""

import re
from collections.abc import AsyncIterator, Mapping

import httpx2

from app.provider.answers import parse_json
from app.provider.errors import no_stream
from app.util import bounds
from app.util.bounds import MAX_ERROR_BYTES, AnswerPassedLimit, require_few_values, require_identity

_FIELDS = (b"data", b"event", b"id", b"retry", b":")
_CHARACTER = re.compile(rb"\\(?:\\|u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..))")
"""An escaped backslash, a pair of surrogates, or half of one."""


async def bound(response: httpx2.Response) -> None:
    """Of an answer that is no success as much is read as is kept. Nothing is unpacked: raises AnswerPassedLimit for a success
    that is compressed."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    is_compressed = False
    try:
        require_identity(response.headers)
    except AnswerPassedLimit:
        if response.is_success:
            raise
        is_compressed = True
        del response.headers["content-encoding"]
    if response.is_success:
        response.stream = WholeEvents(response.stream, response.status_code, response.headers, str(response.url))
    else:
        response.stream = _Beginning(response.stream, 0 if is_compressed else MAX_ERROR_BYTES)


class WholeEvents(httpx2.AsyncByteStream):
    """The bytes of a stream of events, one whole event at a time. Left out is what holds no data, such as a comment, which
    openai's SDK may read as JSON, and a last event that was cut off.

    Raises AnswerPassedLimit; ApiFailure for an answer of another kind: a page, an error in JSON.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, status: int, headers: Mapping[str, str], url: str) -> None:
        self._stream = stream
        self._status = status
        self._headers = headers
        self._url = url
        self._left_out = b""
        self._any = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for chunk in self._stream:
            sought = max(len(rest) - 2, 0)
            rest += chunk
            if end := _end_of_events(rest, sought):
                yield self._looked_at(bytes(rest[:end]))
                del rest[:end]
            if len(rest) > bounds.MAX_EVENT_BYTES:
                raise AnswerPassedLimit(f"An event of the stream has more than {bounds.MAX_EVENT_BYTES} bytes")
        last = bytes(rest)
        if _is_whole(last):
            yield self._looked_at(last)
        self._require_events(last)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _looked_at(self, whole: bytes) -> bytes:
        return b"".join([self._event(text.strip(b"\n")) for text in whole.replace(b"\r\n", b"\n").split(b"\n\n")])

    def _event(self, text: bytes) -> bytes:
        """Empty for one without data."""
        if (text.startswith(b"data:") or b"\ndata:" in text) and text.partition(b"data:")[2].strip():
            self._any = True
            require_few_values(text)
            return _of_whole_characters(text) + b"\n\n"
        if text and not self._any:
            self._left_out = (self._left_out + text + b"\n\n")[:MAX_ERROR_BYTES]
        return b""

    def _require_events(self, rest: bytes) -> None:
        body = (self._left_out + rest)[:MAX_ERROR_BYTES]
        if not self._any and any(line and not line.startswith(_FIELDS) for line in body.splitlines()):
            raise no_stream(self._status, self._headers, body.decode(errors="replace").strip(), self._url)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        if not left:
            return
        async for chunk in self._stream:
            yield chunk[:left]
            left = max(left - len(chunk), 0)
            if not left:
                return

    async def aclose(self) -> None:
        await self._stream.aclose()


def _end_of_events(text: bytearray, sought: int) -> int:
    """0 without one."""
    plain, other = text.rfind(b"\n\n", sought), text.rfind(b"\n\r\n", sought)
    return 0 if plain == other else max(plain + 2, other + 3)


def _is_whole(text: bytes) -> bool:
    """Whether an event without its empty line has all its data."""
    _, name, data = text.rpartition(b"data:")
    try:
        return data.strip() == b"[DONE]" or (bool(name) and isinstance(parse_json(data), dict))
    except ValueError:
        return False


def _of_whole_characters(event: bytes) -> bytes:
    if b"\\u" not in event:
        return event
    return _CHARACTER.sub(lambda found: rb"\ufffd" if found[1] else found[0], event)
