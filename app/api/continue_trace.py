"""Lets what a request starts belong to the trace that its `traceparent` names."""

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from app.telemetry.traces import Traces


class ContinueTrace:
    def __init__(self, app: ASGIApp, traces: "Traces") -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._traces.request(Headers(scope=scope)):
            await self._app(scope, receive, send)
