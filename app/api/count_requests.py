"""Counts requests by route and status, and what event streams send, as plain ASGI around all else."""

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from app.telemetry.metrics import Metrics

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"
"""Of what no route was found for, or was refused before one was looked for."""


class CountRequests:
    def __init__(self, app: ASGIApp, metrics: "Metrics") -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _CountedAnswer(self._metrics, send)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            answer.end(scope)


class _CountedAnswer:
    def __init__(self, metrics: "Metrics", send: Send) -> None:
        self._metrics = metrics
        self._send = send
        self._status = 500
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if _is_event_stream(message):
                self._is_stream = True
                self._metrics.sse_clients.inc()
        elif self._is_stream:
            self._metrics.sse_bytes.inc(len(message.get("body", b"")))
        await self._send(message)

    def end(self, scope: Scope) -> None:
        if self._is_stream:
            self._metrics.sse_clients.dec()
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path_format", NO_ROUTE)
        self._metrics.requests.labels(method, route, self._status).inc()


def _is_event_stream(start: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start.get("headers", ()))
