"""Around all else, as plain ASGI: what a request starts belongs to the trace that its `traceparent` names, its answer is counted
by route and status, and logged, with what failed, where it is a 5xx."""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import FAILURE, Refusal
from app.schema.errors import ServiceError
from app.util.secrets import one_line

if TYPE_CHECKING:
    from app.telemetry.metrics import Metrics
    from app.telemetry.traces import Traces

log = logging.getLogger(__name__)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"
"""Of what no route was found for, or was refused before one was looked for."""


class ObserveRequests:
    """An unexpected error becomes a 500, which says nothing of the server's insides. One that comes after an answer has begun
    goes on to the HTTP server, which closes the connection and logs it."""

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
            with self._traced(scope):
                await self._answer(scope, receive, answer)
        finally:
            answer.count(scope)

    def _traced(self, scope: Scope) -> AbstractContextManager[None]:
        return self._traces.request(Headers(scope=scope)) if self._traces else nullcontext()

    async def _answer(self, scope: Scope, receive: Receive, answer: "_ObservedAnswer") -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            log.exception("%s failed", _request(scope))
            message = f"{type(error).__name__}: the server could not do this. Its log says why."
            await Refusal(500, "UnknownError", message)(scope, receive, answer.send)
            return
        if answer.status >= 500:
            _log_answer(scope, answer.status, scope.get(FAILURE))


class _ObservedAnswer:
    def __init__(self, send: Send, metrics: "Metrics | None") -> None:
        self._send = send
        self._metrics = metrics
        self.status = 0
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._metrics and _is_event_stream(message):
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


def _is_event_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start.get("headers", ()))


def _log_answer(scope: Scope, status: int, failure: Exception | None) -> None:
    if isinstance(failure, ServiceError) and failure.is_logged:
        return
    told = f"{type(failure).__name__}: {failure}" if failure else "see the answer"
    log.warning("%s was answered with %d: %s", _request(scope), status, told)


def _request(scope: Scope) -> str:
    return one_line(f"{scope['method']} {scope['path']}")
