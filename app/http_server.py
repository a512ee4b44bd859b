"""The HTTP server: uvicorn with limits for an address and headers, for connections that send nothing and for clients that do not
read, and an end that lets running turns finish.

uvicorn has no settings for these limits: `h11_max_incomplete_event_size` is of its slower protocol. uvicorn's own
`limit_concurrency` bounds the number of connections.
"""

import asyncio
import logging
import os
import socket
import threading
from functools import cache
from http import HTTPStatus
from types import FrameType
from typing import Any, ClassVar

import orjson
from uvicorn.config import LOGGING_CONFIG, Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server

from app.api.errors import answering_cut_off_requests
from app.settings import Settings
from app.users.login import connected_terminal
from app.workspace.terminals.terminal import INPUT_BYTES

log = logging.getLogger(__name__)

GRACEFUL_SECONDS = 4
"""How long answers that are not of turns may take when the turns are over."""
IDLE_CONNECTION_SECONDS = 20
"""Longer than clients keep theirs (httpx2 5 s, aiohttp 15 s): a server that closes first may do so as the next request comes."""
LAST_SECONDS = 8.0
"""How long a server may take to end after its grace period. After that something hangs, most likely in a project's files."""
ENDED_BY_FORCE = 70

HEAD_SECONDS = 30.0
"""The timeout for the head of a request."""
STALL_SECONDS = 30.0
"""A connection is closed after the client has read nothing for this long."""
LAST_REQUEST_SECONDS = 0.3
"""How long an idle connection stays open when the server stops, so that a request in transit is answered, not reset."""
LINGER_SECONDS = 2.0
"""How long to discard what a rejected client still sends: closed at once, the client would not get the answer."""


class DrainingServer(Server):
    """Listens until running turns are over, so that clients can answer their questions; every answer closes its connection. A
    second signal skips the grace period."""

    def __init__(self, config: Config, application: Any) -> None:
        super().__init__(config)
        self._application = application.state.server

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.gather(self._application.wind_down(), self._close_connections())
        if self.server_state.connections:
            await self._close_connections()  # of turns' answers and event streams, which have just ended
        await super().shutdown(sockets)

    async def _close_connections(self) -> None:
        await asyncio.sleep(LAST_REQUEST_SECONDS)
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedRequests):
                connection.close_when_answered()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            _end_by_force_after(LAST_SECONDS)
            self.config.timeout_graceful_shutdown = 1
            self._application.skip_grace_period()
            return
        super().handle_exit(sig, frame)
        _end_by_force_after(self._application.settings.shutdown_seconds + LAST_SECONDS)
        self._application.draining.begin()
        self.config.encoded_headers.append((b"connection", b"close"))
        self.server_state.default_headers.append((b"connection", b"close"))


def _end_by_force_after(seconds: float) -> None:
    """Ends the process even if the loop hangs: by a thread that waits for nothing else. The next start repairs what is left."""

    def end() -> None:
        log.critical("the server has not ended within %g s: something hangs, and it is ended by force", seconds)
        os._exit(ENDED_BY_FORCE)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class RefusedHead(Exception):
    """Raised within the parser, which then stops."""


class BoundedRequests(HttpToolsProtocol):
    """One request at a time: the next one is read when the last is answered."""

    max_head_bytes: ClassVar[int]
    max_connections: ClassVar[int]

    _in_head = True
    _parsed = 0
    """Bytes of the head that have been counted."""
    _received = 0
    """Bytes that came while a head was incomplete: the parser returns a long header only when it has all of it."""
    _refusal = HTTPStatus.BAD_REQUEST
    _is_refused = False
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._head_timer)
        _cancel(self._stall_timer)
        super().connection_lost(exc)

    def close_when_answered(self) -> None:
        """Closes an idle connection at once, one that answers after its answer: LAST_REQUEST_SECONDS later if the head, without
        `Connection: close`, has been sent already. Leaves a connection open whose first or next request is still coming."""
        if self._in_head:
            return
        if self.cycle.response_started and not self.cycle.response_complete:
            self.timeout_keep_alive = LAST_REQUEST_SECONDS  # type: ignore[assignment]
        else:
            self.shutdown()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # The head of a request.

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        began_in_head = self._in_head
        super().data_received(data)
        if self._is_refused:
            return
        if not self._in_head:
            self._restart_idle_timer()
            return
        self._expect_head()  # the rare head that did not come in one piece
        self._received += len(data) if began_in_head else 0
        if self._received > self.max_head_bytes:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.send_400_response("")

    def _restart_idle_timer(self) -> None:
        """uvicorn stops the timer whatever comes: also an empty line, or the rest of a body that was not read."""
        is_upgraded = self not in self.connections
        if not is_upgraded and not self._is_answering():
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _has_sent_all(self) -> bool:
        """Whether all of an answer with a length is sent. Its client may send the next request before the application ends."""
        return self.cycle.response_started and not self.cycle.chunked_encoding and self.cycle.expected_content_length == 0

    def on_message_begin(self) -> None:
        if self._is_answering() and not self._has_sent_all():
            raise RefusedHead
        self._in_head, self._parsed = True, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url), HTTPStatus.REQUEST_URI_TOO_LONG)
        super().on_url(url)

    def on_headers_complete(self) -> None:
        self._count(sum(len(name) + len(value) for name, value in self.headers), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._in_head, self._received = False, 0
        _cancel(self._head_timer)
        self._head_timer = None
        if self.parser.should_upgrade():
            self._choose_websocket()
        super().on_headers_complete()

    def _choose_websocket(self) -> None:
        """Only terminals are reached by WebSockets, whose library is loaded for the first. A refused one stays HTTP."""
        is_terminal = connected_terminal(self.url.partition(b"?")[0].decode("latin-1")) is not None
        has_room = len(self.connections) <= self.max_connections
        self.ws_protocol_class = _websocket_protocol() if is_terminal and has_room else None

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _count(self, size: int, refusal: HTTPStatus) -> None:
        self._parsed += size
        if self._parsed > self.max_head_bytes:
            self._refusal = refusal
            raise RefusedHead

    def send_400_response(self, msg: str) -> None:
        """Called for whatever the parser rejects. In the midst of an answer no other one can be given."""
        self._is_refused = True
        if self._is_answering():
            self.transport.abort()
            return
        name, message = _REFUSALS[self._refusal]
        body = orjson.dumps({"name": name, "data": {"message": message}})
        self.transport.write(_HEAD % (self._refusal, self._refusal.phrase.encode(), len(body)) + body)
        self.transport.write_eof()
        _cancel(self._head_timer)
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # Clients that do not read.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        _cancel(self._stall_timer)
        super().resume_writing()

    def _start_stall_timer(self) -> None:
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self._abort_if_stalled, self.transport.get_write_buffer_size())

    def _abort_if_stalled(self, unsent: int) -> None:
        """`unsent`: the bytes at the timer's start. A client that is only slow has taken some of them."""
        if self.transport.get_write_buffer_size() >= unsent:
            self.transport.abort()
        else:
            self._start_stall_timer()


_HEAD = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
_REFUSALS = {
    HTTPStatus.BAD_REQUEST: ("BadRequest", "This is no HTTP request."),
    HTTPStatus.REQUEST_URI_TOO_LONG: ("AddressTooLongError", "The address is too long (OPENSESSION_MAX_HEAD_BYTES)."),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "HeadersTooLargeError",
        "The address and headers are too long together (OPENSESSION_MAX_HEAD_BYTES).",
    ),
}


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


@cache
def _websocket_protocol() -> type[asyncio.Protocol]:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class TerminalProtocol(WebSocketsSansIOProtocol):
        async def send(self, message: Any) -> None:
            """uvicorn would log a handshake that was refused with a status of its own as a failure of the server."""
            await super().send(message)
            if message["type"] == "websocket.http.response.body":
                self.handshake_complete = True

    return TerminalProtocol


def http_server(application: Any, settings: Settings) -> DrainingServer:
    """`application`: made by create_app."""

    class Protocol(BoundedRequests):
        max_head_bytes = settings.max_head_bytes
        max_connections = settings.max_connections

    config = Config(
        answering_cut_off_requests(application),
        http=Protocol,
        log_level="error" if settings.log_level == "error" else "warning",
        access_log=False,
        log_config=LOGGING_CONFIG if settings.log_format == "text" else None,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        limit_concurrency=settings.max_connections + 1,
        server_header=False,
        proxy_headers=False,
        ws="none",
        ws_max_size=INPUT_BYTES,
        ws_per_message_deflate=False,
    )
    return DrainingServer(config, application)
