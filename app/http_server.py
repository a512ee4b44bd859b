"""The HTTP server: uvicorn with limits on connections, and an end that lets running turns finish."""

import asyncio
import logging
import os
import socket
import threading
from functools import cache
from types import FrameType
from typing import Any

from uvicorn.config import LOGGING_CONFIG, Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import Server

from app.bounded_requests import LAST_REQUEST_SECONDS, BoundedRequests
from app.pty.pseudo_terminal import INPUT_BYTES
from app.settings import Settings
from app.users.login import connected_terminal

log = logging.getLogger(__name__)

GRACEFUL_SECONDS = 4
"""How long answers that are no turns' may take when the turns are over."""
IDLE_CONNECTION_SECONDS = 20
"""Longer than clients keep theirs (httpx2 5 s, aiohttp 15 s): a server that closes first may do so as the next request comes."""


LAST_SECONDS = 8.0
"""How long a server may take to end after its grace period. Then something hangs, in the files of a project most likely."""
ENDED_BY_FORCE = 70


class DrainingServer(Server):
    """Listens until running turns are over, so that clients can answer what they ask; every answer closes its connection.
    A second signal skips the grace period."""

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
        self._application.refuse_work()
        self.config.encoded_headers.append((b"connection", b"close"))
        self.server_state.default_headers.append((b"connection", b"close"))


def _end_by_force_after(seconds: float) -> None:
    """Whatever hangs, the loop itself even: by a thread that waits for nobody else. The next start puts right what is left."""

    def end() -> None:
        log.critical("the server has not ended within %g s: something hangs, and it is ended by force", seconds)
        os._exit(ENDED_BY_FORCE)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def http_server(application: Any, settings: Settings) -> DrainingServer:
    """`application` is what create_app gives."""
    config = Config(
        application,
        http=_protocol(settings),
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


def _protocol(settings: Settings) -> type[HttpToolsProtocol]:
    class Protocol(BoundedRequests):
        max_head_bytes = settings.max_head_bytes
        max_connections = settings.max_connections

        def on_headers_complete(self) -> None:
            """Terminals alone are reached by WebSockets, whose library is loaded for the first. What is refused stays HTTP."""
            if self.parser.should_upgrade():
                is_terminal = connected_terminal(self.url.partition(b"?")[0].decode("latin-1")) is not None
                has_room = len(self.connections) <= self.max_connections
                self.ws_protocol_class = _websocket_protocol() if is_terminal and has_room else None
            super().on_headers_complete()

    return Protocol
