"""Logs each request that is answered with a 5xx, once, with what failed, as plain ASGI around all else."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import FAILURE
from app.api.refusal import Refusal
from app.schema.errors import ServiceError
from app.util.log import one_line

log = logging.getLogger(__name__)


class LogFailures:
    """An unexpected error becomes a 500, which says nothing of the server's insides. One that comes after an answer has begun
    goes on to the HTTP server, which closes the connection and logs it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if status:
                raise
            log.exception("%s failed", _request(scope))
            message = f"{type(error).__name__}: the server could not do this. Its log says why."
            await Refusal(500, "UnknownError", message)(scope, receive, send)
            return
        if status >= 500:
            _log_answer(scope, status, scope.get(FAILURE))


def _log_answer(scope: Scope, status: int, failure: Exception | None) -> None:
    if isinstance(failure, ServiceError) and failure.is_logged:
        return
    told = f"{type(failure).__name__}: {failure}" if failure else "see the answer"
    log.warning("%s was answered with %d: %s", _request(scope), status, told)


def _request(scope: Scope) -> str:
    return one_line(f"{scope['method']} {scope['path']}")
