"""Records of requests. The audit log: one line of JSON for every request that may write and every connection to a terminal, in
`audit.log` in the data directory; of several servers each has its own file. A line is written before the client gets its answer.
It has no body and no query string, so that no secret is in it.

ObserveRequests, around all else, is plain ASGI: what a request starts belongs to the trace that its `traceparent` names; its
answer is counted by route and status, and a 5xx is logged with its error.
"""

import errno
import logging
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import FAILURE, Refusal
from app.schema.errors import ServiceError
from app.schema.session import Session
from app.users.login import ANYONE
from app.util import clock
from app.util.secrets import one_line

if TYPE_CHECKING:
    from app.events.telemetry.metrics import Metrics
    from app.events.telemetry.traces import Traces

log = logging.getLogger(__name__)

FILE_BYTES = 10 * 1024 * 1024
OLD_FILES = 9
MAX_PATH_CHARACTERS = 500
_FULL = (errno.ENOSPC, errno.EDQUOT)
WHO = "opensession.who"
"""The key in a request's scope where its login is noted."""
CREATED = "opensession.created"
"""The key in a request's scope where the route that makes a session notes the session's id."""
RETENTION = "retention"
_READING = ("GET", "HEAD", "OPTIONS")


class AuditLog(RotatingFileHandler):
    """At most OLD_FILES + 1 files of FILE_BYTES, which only the owner can read. Opened with the first line. `server`: the name of
    one of several servers that share the data directory; they cannot move each other's files.

    The library names and moves the files; lines are written without the cost of log records."""

    stream: Any
    _size = 0

    def __init__(self, data_dir: Path, server: str | None = None) -> None:
        path = data_dir / (f"audit-{server}.log" if server else "audit.log")
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=OLD_FILES, delay=True)

    def write(self, entry: dict[str, Any]) -> None:
        """Logs a failure instead of raising: a full disk must not block other work."""
        line = orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)
        try:
            if self.stream is not None and self._size + len(line) > self.maxBytes:
                self.doRollover()
            if self.stream is None:
                self.stream = os.fdopen(os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
                self._size = self.stream.tell()
            self._size += len(line)
            self.stream.write(line)
            self.stream.flush()
        except OSError:
            log.warning("the audit log could not be written; its line: %s", line.decode())

    def write_pruned(self, session: Session) -> None:
        """Notes that a session was deleted for its age."""
        path = f"/session/{session.id}"
        self.write({"time": clock.now_ms(), "who": RETENTION, "method": "DELETE", "path": path, "session": session.id})


class Audit:
    """Runs inside the guard, because requests that the guard rejects have changed nothing. Of a connection to a terminal it notes
    that it was accepted, not what is typed."""

    def __init__(self, app: ASGIApp, audit_log: AuditLog) -> None:
        self._app = app
        self._log = audit_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("method") in _READING:
            await self._app(scope, receive, send)
            return
        began, answered = time.monotonic(), False

        async def noting(message: Message) -> None:
            nonlocal answered
            if message["type"] in ("http.response.start", "websocket.accept"):
                answered = True
                self._log.write(_entry(scope, message.get("status", 101), began))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if not answered and scope["type"] == "http":
                self._log.write(_entry(scope, 500, began))


def _entry(scope: Scope, status: int, began: float) -> dict[str, Any]:
    parameters = scope.get("path_params") or {}
    client = scope.get("client")
    return {
        "time": clock.now_ms(),
        "who": scope.get(WHO, ANYONE),
        "from": client[0] if client else None,
        "method": scope.get("method", "GET"),
        "route": getattr(scope.get("route"), "path_format", None),
        "path": scope["path"][:MAX_PATH_CHARACTERS],
        "session": parameters.get("sessionID"),
        "created": scope.get(CREATED),
        "status": status,
        "ms": round((time.monotonic() - began) * 1000),
    }


# Traces, metrics and the log.


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"
"""The route of a request for which no route was found, or that was refused before one was looked for."""


class ObserveRequests:
    """An unexpected error becomes a 500 that says nothing of the server's insides. An error after an answer has begun goes on to
    the HTTP server, which closes the connection and logs it."""

    def __init__(self, app: ASGIApp, metrics: "Metrics | None", traces: "Traces | None") -> None:
        self._app = app
        self._metrics = metrics
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _ObservedAnswer(send, self._metrics)
        try:
            with self._traces.request(Headers(scope=scope)) if self._traces else nullcontext():
                await self._answer(scope, receive, answer)
        finally:
            answer.count(scope)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_ObservedAnswer") -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            if isinstance(error, OSError) and error.errno in _FULL:
                log.error("%s failed: %s", _request(scope), error)
                await Refusal(503, "StorageError", "The server's disk is full. Try again later.")(scope, receive, answer.send)
                return
            log.exception("%s failed", _request(scope))
            message = f"{type(error).__name__}: the server could not do this. Its log says why."
            await Refusal(500, "UnknownError", message)(scope, receive, answer.send)
            return
        failure = scope.get(FAILURE)
        if answer.status >= 500 and not (isinstance(failure, ServiceError) and failure.is_logged):
            reason = f"{type(failure).__name__}: {failure}" if failure else "see the answer"
            log.warning("%s was answered with %d: %s", _request(scope), answer.status, reason)


@dataclass(eq=False)
class _ObservedAnswer:
    _send: Send
    _metrics: "Metrics | None"
    status: int = 0
    _is_stream: bool = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            content_type = Headers(raw=message.get("headers", [])).get("content-type", "")
            if self._metrics and content_type.startswith("text/event-stream"):
                self._is_stream = True
                self._metrics.sse_clients.inc()
        elif self._is_stream and self._metrics:
            self._metrics.sse_bytes.inc(len(message.get("body", b"")))
        await self._send(message)

    def count(self, scope: Scope) -> None:
        if self._metrics is None:
            return
        if self._is_stream:
            self._metrics.sse_clients.dec()
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path_format", NO_ROUTE)
        self._metrics.requests.labels(method, route, self.status or 500).inc()


def _request(scope: Scope) -> str:
    return one_line(f"{scope['method']} {scope['path']}")
