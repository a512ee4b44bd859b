"""Sends a request to a provider through its official SDK and reads the answer as a stream of events.

The SDK provides the connection, the URL and the headers. The body is serialised and the stream parsed here: the SDKs walk a long
history recursively and build typed objects per chunk, which costs several times as much as the rest of the adapter.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from app.provider.base import StreamEvent, StreamStart
from app.provider.wire import errors
from app.provider.wire.sse import SseDecoder, parse_json

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 120.0
_DRAIN_SECONDS = 0.2
_DONE = b"[DONE]"

Payload = dict[str, Any]


def idle_seconds(options: Mapping[str, Any], default: float) -> float | None:
    """The idle timeout from the option `timeout`: milliseconds without data, or false for no limit."""
    match options.get("timeout"):
        case False:
            return None
        case True | None:
            return default
        case int() | float() as milliseconds:
            return milliseconds / 1000
        case _:
            return default


@dataclass(frozen=True, slots=True)
class SdkClient:
    """`client` is an AsyncOpenAI or AsyncAnthropic; `headers` go with every call; the SDK's `Omit` as a value leaves one out."""

    client: Any
    headers: dict[str, Any]


def _closed(_timeout: "httpx2.Timeout") -> SdkClient:
    raise RuntimeError("This provider's connection is closed: its directory was closed.")


class ProviderConnection:
    """Creates the SDK's client at the first request, in a thread: importing an SDK takes memory and half a second."""

    def __init__(self, make: Callable[["httpx2.Timeout"], SdkClient], *, idle_seconds: float | None) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._sdk: SdkClient | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def post(self, path: str, body: Payload, headers: dict[str, str]) -> AsyncIterator["ProviderStream"]:
        """Raises a ProviderFailure."""
        stream = ProviderStream(await self._send(path, body, headers))
        try:
            yield stream
            await stream.drain()
        finally:
            await stream.close()

    async def close(self) -> None:
        """Drops the client and what makes it: in a cycle, megabytes would wait for the garbage collector."""
        sdk, self._sdk, self._make = self._sdk, None, _closed
        if sdk is not None:
            await sdk.client.close()

    async def _open(self) -> SdkClient:
        async with self._opening:
            if self._sdk is None:
                self._sdk = await asyncio.to_thread(self._made)
        return self._sdk

    def _made(self) -> SdkClient:
        import httpx2

        return self._make(httpx2.Timeout(self._idle_seconds, connect=CONNECT_SECONDS))

    async def _send(self, path: str, body: Payload, headers: dict[str, str]) -> "httpx2.Response":
        sdk = await self._open()
        import httpx2

        options = {"headers": {**sdk.headers, **headers}}
        content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        try:
            response: httpx2.Response = await sdk.client.post(
                path, cast_to=httpx2.Response, content=content, options=options, stream=True
            )
        except Exception as error:
            failure = errors.failure_of(error, str(sdk.client.base_url).rstrip("/") + path)
            if failure is None:
                raise
            raise failure from error
        return response


class ProviderStream:
    """The parsed events of an answer, until `[DONE]` or its end."""

    def __init__(self, response: "httpx2.Response") -> None:
        self._response = response
        self._chunks = response.aiter_bytes()
        self._decoder = SseDecoder()
        self._ready: deque[bytes] = deque()
        self._ended = False
        self._any = False

    def __aiter__(self) -> "ProviderStream":
        return self

    async def __anext__(self) -> Payload:
        while not self._ready and not self._ended:
            await self._read()
        if not self._ready or self._ready[0] == _DONE:
            raise StopAsyncIteration
        self._any = True
        return self._parse(self._ready.popleft())

    async def drain(self) -> None:
        """Reads the rest after the last event, so that the connection can be reused. Errors are ignored: the answer is
        complete."""
        import httpx2

        with suppress(TimeoutError, httpx2.RequestError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._chunks:
                    pass

    async def close(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()

    async def _read(self) -> None:
        import httpx2

        try:
            chunk = await anext(self._chunks, None)
        except httpx2.RequestError as error:
            raise errors.failure_of(error, self._url) or error from error
        if chunk is None:
            self._end()
        else:
            self._ready.extend(self._decoder.feed(chunk))

    def _parse(self, data: bytes) -> Payload:
        payload = _object(data)
        if payload is None:
            raise errors.unreadable_event(data, self._url)
        return payload

    def _end(self) -> None:
        """Accepts a complete last event without its empty line."""
        self._ended = True
        last = self._decoder.close()
        if last is not None and _object(last) is not None:
            self._ready.append(last)
        elif not self._any and self._decoder.stray:
            body = self._decoder.stray.decode(errors="replace").strip()
            raise errors.no_stream(self._response.status_code, self._response.headers, body, self._url)

    @property
    def _url(self) -> str:
        return str(self._response.request.url)


def _object(data: bytes) -> Payload | None:
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


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


async def converse(
    connection: ProviderConnection, path: str, body: Payload, headers: dict[str, str], reader: Reader
) -> AsyncGenerator[StreamEvent, None]:
    """Emits no StreamStart if the first event is an error."""
    started = False
    async with connection.post(path, body, headers) as payloads:
        async for payload in payloads:
            events = reader.read(payload)
            if not started:
                started = True
                yield StreamStart()
            for event in events:
                yield event
            if reader.finished:
                break
    if not started:
        yield StreamStart()
    for event in reader.end():
        yield event
