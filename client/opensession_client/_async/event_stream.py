"""The event stream, which resumes by itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, Self

import httpx
from httpx_sse import EventSource, ServerSentEvent

from opensession_client.errors import ApiError, api_error
from opensession_client.events import StreamedEvent, parse_event
from opensession_client.reconnecting import Reconnecting

SILENCE_SECONDS = 30.0
"""The server sends a heartbeat every ten seconds: after so long a silence the connection is dead."""


class AsyncEventStream:
    """Events of a directory, in order, none missed and none twice: `async with client.stream() as events`, then `async for`.

    A connection that breaks is made again with the id of the last event, and the server sends what came meanwhile. Where that is
    too long ago it sends `EventServerResync`: read again what you show.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        directory: str | None,
        parts: Literal["full", "delta"],
        last_event_id: str | None,
        reconnect_seconds: float | None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.last_event_id = last_event_id
        """Of the last event that was yielded. Keep it, and a later stream goes on behind it."""
        self._http = http
        self._query = {"ids": "true", "parts": parts, **({"directory": directory} if directory else {})}
        self._reconnecting = Reconnecting(reconnect_seconds)
        self._timeout = httpx.Timeout(10, read=silence_seconds, pool=None)
        self._response: httpx.Response | None = None
        self._frames: AsyncIterator[ServerSentEvent] | None = None
        self._greeting: ServerSentEvent | None = None
        self._retry_hint: float | None = None

    async def __aenter__(self) -> Self:
        """From now on nothing is missed. Raises ApiError and httpx's errors: the first connection is not tried again."""
        try:
            self._greeting = await self._next_frame()
        except BaseException:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamedEvent:
        frame = await self._frame()
        while not frame.data:
            frame = await self._frame()
        self.last_event_id = frame.id or self.last_event_id
        return parse_event(frame.data)

    async def _frame(self) -> ServerSentEvent:
        """Raises httpx's error or ApiError when the server stays away, ApiError at once when it refuses the stream."""
        if self._greeting is not None:
            frame, self._greeting = self._greeting, None
            return frame
        while True:
            try:
                return await self._next_frame()
            except (httpx.TransportError, ApiError) as error:
                await self._disconnect()
                hint, self._retry_hint = self._retry_hint, None
                await asyncio.sleep(self._reconnecting.delay(error, hint))

    async def _next_frame(self) -> ServerSentEvent:
        if self._frames is None:
            self._frames = await self._connect()
        try:
            frame = await anext(self._frames)
        except StopAsyncIteration:
            raise httpx.RemoteProtocolError("The server ended the event stream") from None
        self._reconnecting.worked()
        self._retry_hint = frame.retry / 1000 if frame.retry is not None else None
        return frame

    async def _connect(self) -> AsyncIterator[ServerSentEvent]:
        resume = {} if self.last_event_id is None else {"last-event-id": self.last_event_id}
        headers = {"accept": "text/event-stream", **resume}
        request = self._http.build_request("GET", "/event", params=self._query, headers=headers, timeout=self._timeout)
        self._response = await self._http.send(request, stream=True)
        if self._response.is_error:
            content = await self._response.aread()
            raise api_error(self._response.status_code, content)
        return EventSource(self._response).aiter_sse()

    async def _disconnect(self) -> None:
        response, self._response, self._frames = self._response, None, None
        if response is not None:
            await response.aclose()
