"""The answer to a request that an SDK has sent: its events, as they come, within the bounds on what a server may send."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from app.provider.base import StreamEvent, StreamStart
from app.provider.wire import errors
from app.provider.wire.sse import SseDecoder, parse_json
from app.util.bounded_answer import EventBytes, require_few_values

_DRAIN_SECONDS = 0.2
_DONE = b"[DONE]"

Payload = dict[str, Any]


class Reader(Protocol):
    """Translates the events of one answer. `finished` is true after the last relevant one."""

    @property
    def finished(self) -> bool: ...

    def read(self, payload: Payload) -> list[StreamEvent]:
        """Raises an ApiFailure for an error event."""
        ...

    def end(self) -> list[StreamEvent]:
        """Ends the open blocks; adds a Finish if the provider sent a finish reason."""
        ...


class SdkResponse(Protocol):
    """What an SDK's `with_streaming_response` gives."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def url(self) -> object: ...

    def iter_bytes(self) -> AsyncIterator[bytes]: ...


class SdkAnswer:
    """The events of an answer, as many at a time as have come, until `[DONE]` or its end."""

    def __init__(self, response: SdkResponse) -> None:
        self._response = response
        self._chunks = response.iter_bytes()
        self._bytes = EventBytes()
        self._decoder = SseDecoder()
        self._start: tuple[StreamStart, ...] = (StreamStart(),)
        self._any = False
        self.ended = False

    async def read(self) -> list[bytes]:
        """The data of those that have come since. Raises a ProviderFailure, AnswerPassedLimit, what the SDK raises."""
        chunk = await anext(self._chunks, b"")
        self._bytes.add(chunk)
        came = self._decoder.feed(chunk) if chunk else self._end()
        if _DONE in came:
            self.ended = True
            came = came[: came.index(_DONE)]
        self._any = self._any or bool(came)
        return came

    def translate(self, came: list[bytes], reader: Reader) -> Iterator[StreamEvent]:
        for data in came:
            events = reader.read(self._parse(data))
            yield from self.start()
            yield from events
            if reader.finished:
                return

    def start(self) -> Iterable[StreamStart]:
        """Once."""
        start, self._start = self._start, ()
        return start

    async def drain(self) -> None:
        """Reads the rest after the last event, so that the connection can be reused. Errors are ignored: the answer is
        complete."""
        import anyio
        import httpx2

        with suppress(TimeoutError, httpx2.HTTPError, ssl.SSLError, anyio.EndOfStream):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await anext(self._chunks, b""):
                    pass

    def _parse(self, data: bytes) -> Payload:
        require_few_values(data)
        payload = _object(data)
        if payload is None:
            raise errors.unreadable_event(data, self._url)
        return payload

    def _end(self) -> list[bytes]:
        """Accepts a complete last event without its empty line."""
        self.ended = True
        last = self._decoder.close()
        if last is not None and _object(last) is not None:
            return [last]
        if not self._any and self._decoder.stray:
            body = self._decoder.stray.decode(errors="replace").strip()
            raise errors.no_stream(self._response.status_code, self._response.headers, body, self._url)
        return []

    @property
    def _url(self) -> str:
        return str(self._response.url)


def _object(data: bytes) -> Payload | None:
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
