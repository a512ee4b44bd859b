"""What a connection may take of the server before a request is one: uvicorn's HTTP protocol, with limits for an address and
headers, for connections that send nothing and for clients that do not read.

uvicorn has no settings for these: `h11_max_incomplete_event_size` is of its other protocol, which is slower. How many connections
there may be is its `limit_concurrency`.
"""

import asyncio
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, ClassVar

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.incoming_body import WHOLE

HEAD_SECONDS = 30.0
"""The timeout for the head of a request."""
STALL_SECONDS = 30.0
"""A connection is closed after the client has read nothing for this long."""
LAST_REQUEST_SECONDS = 0.3
"""How long an idle connection stays open when the server stops, so that a request in transit is answered, not reset."""
LINGER_SECONDS = 2.0
"""How long to discard what a rejected client still sends: closed at once, the client would not get the answer."""
PATIENT_SECONDS = 2.0
"""A connection whose request has not come whole for this long may be closed to make room for others."""
SPARE_CONNECTIONS = 100
"""This many connections above the limit get a 503 of uvicorn's; further ones are closed at once."""


class RefusedHead(Exception):
    """Raised within the parser, which then stops."""


class BoundedRequests(HttpToolsProtocol):
    max_head_bytes: ClassVar[int]
    max_connections: ClassVar[int]

    owes_since = math.inf
    """By the loop's clock: since when a request has not come whole."""
    _in_head = True
    _parsed = 0
    """Bytes of the head that have been counted."""
    _received = 0
    """Bytes that have come while a head was not complete: the parser gives a long header out only when it has it whole."""
    _refusal = HTTPStatus.BAD_REQUEST
    _refused = False
    _cycles: Sequence[Any] = ()
    """Requests and their answers, of which one may wait for another."""
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.owes_since = self.loop.time()
        above = len(self.connections) - self.max_connections
        if above > SPARE_CONNECTIONS:
            self.transport.abort()
            return
        if above > 0:
            self._make_room()
        self._expect_head()

    def _make_room(self) -> None:
        """Slow clients keep nobody out: the one that has been slow for longest is closed."""
        others = [each for each in self.connections if isinstance(each, BoundedRequests)]
        slowest = min(others, key=lambda each: each.owes_since)
        if slowest.owes_since <= self.loop.time() - PATIENT_SECONDS:
            slowest.owes_since = math.inf
            slowest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_timer)
        _cancel(self._stall_timer)
        self._give_up_requests()
        super().connection_lost(exc)

    def close_when_answered(self) -> None:
        """Closes an idle connection at once, another after its answer: LAST_REQUEST_SECONDS after one whose head, without
        `Connection: close`, has been sent already. A connection whose first or next request is still coming stays open."""
        if self._in_head:
            return
        if self.cycle.response_started and not self.cycle.response_complete:
            self.timeout_keep_alive = LAST_REQUEST_SECONDS  # type: ignore[assignment]
        else:
            self.shutdown()

    # The head of a request.

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        began_in_head = self._in_head
        super().data_received(data)
        if self._in_head and not self._refused:
            self._expect_rest(len(data) if began_in_head else 0)

    def _expect_rest(self, came: int) -> None:
        """Of a head that did not come whole, as it almost always does."""
        self._expect_head()
        self._received += came
        if self._received > self.max_head_bytes:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.send_400_response("")

    def on_message_begin(self) -> None:
        self._in_head, self._parsed = True, 0
        self.owes_since = min(self.owes_since, self.loop.time())
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url), HTTPStatus.REQUEST_URI_TOO_LONG)
        super().on_url(url)

    def on_headers_complete(self) -> None:
        self._count(sum(len(name) + len(value) for name, value in self.headers), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._in_head, self._received = False, 0
        _cancel(self._head_timer)
        self._head_timer = None
        super().on_headers_complete()
        self._cycles = [cycle for cycle in (*self._cycles, self.cycle) if cycle and not cycle.response_complete]

    def on_message_complete(self) -> None:
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        self.owes_since = math.inf
        super().on_message_complete()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _count(self, size: int, refusal: HTTPStatus) -> None:
        self._parsed += size
        if self._parsed > self.max_head_bytes:
            self._refusal = refusal
            raise RefusedHead

    def send_400_response(self, msg: str) -> None:
        """Called for whatever the parser does not take."""
        self._give_up_requests()
        body = orjson.dumps(_REFUSALS[self._refusal])
        self.transport.write(_HEAD % (self._refusal, self._refusal.phrase.encode(), len(body)) + body)
        self.transport.write_eof()
        self._refused = True
        _cancel(self._head_timer)
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _give_up_requests(self) -> None:
        """All that came on this connection and are not answered yet; uvicorn itself thinks of the latest alone."""
        self.pipeline.clear()
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    # Clients that do not read.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        _cancel(self._stall_timer)
        super().resume_writing()

    def _watch(self) -> None:
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._look, self.transport.get_write_buffer_size())

    def _look(self, waiting: int) -> None:
        """A client that is only slow has taken some of what waited."""
        if self.transport.get_write_buffer_size() >= waiting:
            self.transport.abort()
        else:
            self._watch()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _error(name: str, message: str) -> dict[str, Any]:
    return {"name": name, "data": {"message": message}}


_HEAD = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_REFUSALS = {
    HTTPStatus.BAD_REQUEST: _error("BadRequest", "This is no HTTP request."),
    HTTPStatus.REQUEST_URI_TOO_LONG: _error("AddressTooLongError", "The address is too long (OPENSESSION_MAX_HEAD_BYTES)."),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: _error(
        "HeadersTooLargeError", "The address and headers are too long together (OPENSESSION_MAX_HEAD_BYTES)."
    ),
}
