# Generated from _async/event_stream.py by `make openapi`.
"""The event stream, which resumes by itself."""

import time
from collections.abc import Iterator
from typing import Literal, Self

import httpx
from httpx_sse import EventSource, ServerSentEvent

from opensession_client.errors import ApiError, api_error
from opensession_client.events import StreamedEvent, parse_event
from opensession_client.reconnecting import Reconnecting

SILENCE_SECONDS = 30.0
"""The server sends a heartbeat every ten seconds: after so long a silence the connection is dead."""


class EventStream:
    """Events of a directory, in order, none missed and none twice: `with client.stream() as events`, then `for`.

    A connection that breaks is made again with the id of the last event, and the server sends what came meanwhile. Where that is
    too long ago it sends `EventServerResync`: read again what you show.
    """

    def __init__(
        self,
        http: httpx.Client,
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
        self._frames: Iterator[ServerSentEvent] | None = None
        self._greeting: ServerSentEvent | None = None
        self._retry_hint: float | None = None

    def __enter__(self) -> Self:
        """From now on nothing is missed. Raises ApiError and httpx's errors: the first connection is not tried again."""
        try:
            self._greeting = self._next_frame()
        except BaseException:
            self._disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamedEvent:
        frame = self._frame()
        while not frame.data:
            frame = self._frame()
        self.last_event_id = frame.id or self.last_event_id
        return parse_event(frame.data)

    def _frame(self) -> ServerSentEvent:
        """Raises httpx's error or ApiError when the server stays away, ApiError at once when it refuses the stream."""
        if self._greeting is not None:
            frame, self._greeting = self._greeting, None
            return frame
        while True:
            try:
                return self._next_frame()
            except (httpx.TransportError, ApiError) as error:
                self._disconnect()
                hint, self._retry_hint = self._retry_hint, None
                time.sleep(self._reconnecting.delay(error, hint))

    def _next_frame(self) -> ServerSentEvent:
        if self._frames is None:
            self._frames = self._connect()
        try:
            frame = next(self._frames)
        except StopIteration:
            raise httpx.RemoteProtocolError("The server ended the event stream") from None
        self._reconnecting.worked()
        self._retry_hint = frame.retry / 1000 if frame.retry is not None else None
        return frame

    def _connect(self) -> Iterator[ServerSentEvent]:
        resume = {} if self.last_event_id is None else {"last-event-id": self.last_event_id}
        headers = {"accept": "text/event-stream", **resume}
        request = self._http.build_request("GET", "/event", params=self._query, headers=headers, timeout=self._timeout)
        self._response = self._http.send(request, stream=True)
        if self._response.is_error:
            content = self._response.read()
            raise api_error(self._response.status_code, content)
        return EventSource(self._response).iter_sse()

    def _disconnect(self) -> None:
        response, self._response, self._frames = self._response, None, None
        if response is not None:
            response.close()
