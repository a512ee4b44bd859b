"""Every error becomes JSON, in the form of the API that was asked."""

import traceback

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.api.errors import first_form, named, note_failure
from app.api.refusal import is_second_api
from app.api.v2.errors import second_form
from app.schema.errors import ServiceError
from app.storage.engine import StorageError


def install(app: FastAPI) -> None:
    for kind in (ServiceError, RequestValidationError, HTTPException, StorageError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(ClientDisconnect, _client_gone)


async def _answer(request: Request, error: Exception) -> Response:
    """The disk may be full, or the database locked or unreachable: then nothing was stored."""
    note_failure(request.scope, error)
    path = request.url.path
    if isinstance(error, HTTPException) and error.status_code in (404, 405):  # the router's
        message = f"There is no route {request.method} {path}"
        return named(
            error.status_code,
            "NotFoundError" if error.status_code == 404 else "MethodNotAllowedError",
            message,
            dict(error.headers or {}),
        )
    answer = second_form(error) if is_second_api(path) else first_form(error, path)
    # Its frames hold the refusal and it holds them; between them is a body of megabytes, and no collector hurries.
    traceback.clear_frames(error.__traceback__)
    return answer


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """The client is gone; the status appears only in the audit log."""
    return named(400, "BadRequest", "The body ended before it was complete.")
