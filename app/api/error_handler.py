"""Every error becomes JSON, in the form of the API that was asked."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.api.errors import STORAGE_MESSAGE, first_form, named, note_failure
from app.api.v2.errors import second_form, tagged
from app.schema.errors import ServiceError
from app.storage.engine import StorageError


def _is_second_api(path: str) -> bool:
    return path.startswith("/api/")


@dataclass(frozen=True)
class Refusal:
    """What is answered before a route is reached. An ASGI application."""

    status: int
    name: str
    message: str
    headers: Mapping[str, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = tagged if _is_second_api(scope["path"]) else named
        await form(self.status, self.name, self.message, dict(self.headers or {}))(scope, receive, send)


def storage_refusal(scope: Scope, error: StorageError) -> Refusal:
    note_failure(scope, error)
    return Refusal(503, "StorageError", STORAGE_MESSAGE)


def install(app: FastAPI) -> None:
    for kind in (ServiceError, RequestValidationError, HTTPException, StorageError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(ClientDisconnect, _client_gone)


async def _answer(request: Request, error: Exception) -> Response:
    """The disk may be full, or the database locked or unreachable: then nothing was stored."""
    note_failure(request.scope, error)
    path = request.url.path
    if isinstance(error, HTTPException) and error.status_code in (404, 405):  # the router's
        return first_form(HTTPException(error.status_code, f"There is no route {request.method} {path}", error.headers), path)
    answer = second_form(error) if _is_second_api(path) else first_form(error, path)
    # Its frames hold the refusal and it holds them; between them is a body of megabytes, and no collector hurries.
    traceback.clear_frames(error.__traceback__)
    return answer


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """The client is gone; the status appears only in the audit log."""
    return named(400, "BadRequest", "The body ended before it was complete.")
