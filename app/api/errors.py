"""Errors in the first API's form, `{name, data}` with the status. Nothing of the server's insides is in a body."""

from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from app.schema.errors import RequestPart, ServiceError, TooMany, bad_request_body
from app.server import ServerStopping
from app.util.secrets import masked

FAILURE = "opensession.failure"
"""Where in a request's scope the error is noted that is answered with a 5xx."""

MAX_ISSUES = 50
LARGEST_ECHO_BYTES = 64 * 1024

REQUEST_PARTS: dict[Any, RequestPart] = {"query": "Query", "path": "Params", "header": "Headers", "body": "Payload"}
"""By where FastAPI says that something is wrong."""

_NAMES = {
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "PayloadTooLargeError",
    415: "UnsupportedMediaTypeError",
}


def rendered(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body, default=str), status, headers or None, media_type="application/json")


def named(status: int, name: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return rendered(status, {"name": name, "data": {"message": message}}, headers)


def headers_of(error: ServiceError) -> dict[str, str] | None:
    return {"Retry-After": str(error.retry_after)} if isinstance(error, TooMany | ServerStopping) else None


def first_form(error: Exception, path: str) -> Response:
    match error:
        case RequestValidationError():
            return _invalid(error, holds_key=path.startswith("/auth/"))
        case ServiceError():
            return rendered(error.status, masked(error.body()), headers_of(error))
        case HTTPException():
            return named(error.status_code, name_of(error), error.detail, dict(error.headers or {}))
    return named(503, "StorageError", STORAGE_MESSAGE)


def _invalid(error: RequestValidationError, *, holds_key: bool) -> Response:
    issues = [_issue(issue) for issue in error.errors()[:MAX_ISSUES]]
    received = None if holds_key else _echo(error.body)
    return rendered(400, bad_request_body(received, issues, REQUEST_PARTS[error.errors()[0]["loc"][0]]))


def _issue(issue: Any) -> dict[str, Any]:
    """`path` names the field, without FastAPI's leading `body` or `query`."""
    return {"code": issue["type"], "path": list(issue["loc"][1:]), "message": issue["msg"]}


def _echo(body: Any) -> Any:
    """What was sent, if it is JSON and short enough to be sent back; answers are logged in many places, so without secrets."""
    if isinstance(body, bytes) or len(orjson.dumps(body, default=str)) > LARGEST_ECHO_BYTES:
        return None
    return masked(body)


def name_of(error: HTTPException) -> str:
    return _NAMES.get(error.status_code, "HTTPError")


def note_failure(scope: Scope, error: Exception) -> None:
    """For the log, where it is answered with a 5xx."""
    scope[FAILURE] = error


STORAGE_MESSAGE = "The server's database cannot do this now. Nothing was stored; try again later."
