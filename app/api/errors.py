"""Every error becomes JSON, by the path of the request: in the first API's form, `{name, data}` with the status, or in the
second's, `{_tag, message, …}`. Nothing of the server's insides is in a body."""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ConfigDict, create_model
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.record.engine import StorageError
from app.schema.base import Wire, wire_name
from app.schema.errors import (
    BadRequest,
    MessageNotFound,
    RequestPart,
    ServiceError,
    SessionNotFound,
    TooMany,
    bad_request_body,
    issue_text,
)
from app.server import ServerStopping
from app.util.secrets import masked

# Errors as the first API describes them.


class BadRequestData(Wire):
    """`kind`: the part of the request that is wrong."""

    message: str
    kind: RequestPart | None = None
    received: Any = None


class BadRequestError(Wire):
    """OpenCode 1.1's clients read `errors` or `error`, which are the same list; those of 1.18 read `data`."""

    name: Literal["BadRequest"]
    data: BadRequestData
    errors: list[dict[str, Any]]
    success: Literal[False]


class ErrorData(Wire):
    message: str


class NamedError(Wire):
    name: str
    data: ErrorData


class NotFoundError(Wire):
    name: Literal["NotFoundError"]
    data: ErrorData


Responses = dict[int | str, dict[str, Any]]

_ERRORS: dict[int, tuple[str, type[Wire]]] = {
    400: ("Bad request", BadRequestError),
    403: ("Not allowed", NamedError),
    404: ("Not found", NotFoundError),
    409: ("Busy, or used for something else", NamedError),
    413: ("Too large", NamedError),
    426: ("Upgrade required", NamedError),
    429: ("Too many", NamedError),
    507: ("The project's sessions take all the room that they may", NamedError),
}


def documented(*statuses: int) -> Responses:
    """The error answers that a route of the first API gives, for the API's description."""
    return {status: described_answer(*_ERRORS[status]) for status in statuses}


named_models: set[type[Wire]] = set()
"""Models of answers that the API's description refers to by their names."""


def described_answer(description: str, *models: type[Wire]) -> dict[str, Any]:
    """An answer of models, by their names: FastAPI would make a validator of each for each route, half a second of a start."""
    named_models.update(models)
    named = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    schema = named[0] if len(named) == 1 else {"anyOf": named}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


# Errors as the second API describes them: `{_tag, message}` and further fields of the tag.


class TaggedAnswer(Wire):
    model_config = ConfigDict(alias_generator=lambda name: "_tag" if name == "tag" else wire_name(name))

    tag: str
    message: str


_TAGGED: dict[str, tuple[int, dict[str, Any]]] = {
    "InvalidRequestError": (400, {"kind": (RequestPart | None, None), "field": (str | None, None)}),
    "InvalidCursorError": (400, {}),
    "UnauthorizedError": (401, {}),
    "ForbiddenError": (403, {}),
    "SessionNotFoundError": (404, {"session_id": str}),
    "MessageNotFoundError": (404, {"session_id": str, "message_id": str}),
    "PermissionNotFoundError": (404, {"request_id": str}),
    "QuestionNotFoundError": (404, {"request_id": str}),
    "ProviderNotFoundError": (404, {"provider_id": str}),
    "FileNotFoundError": (404, {"path": str}),
    "PtyNotFoundError": (404, {"pty_id": str}),
    "ConflictError": (409, {"resource": (str | None, None)}),
    "SessionBusyError": (409, {"session_id": str}),
    "TooManyStreamsError": (429, {}),
}
"""The status and the further fields of each tag."""
_WRONG_INPUT = "`kind`: the part of the request that is wrong. `field`: the field in it; the message names it too."


def described(*tags: str) -> Responses:
    """The same for a route of the second API, any of which may also answer 400 or 401."""
    found: dict[int, list[type[Wire]]] = {}
    for tag in ("InvalidRequestError", "UnauthorizedError", *tags):
        found.setdefault(_TAGGED[tag][0], []).append(_described_tag(tag))
    return {status: described_answer(" or ".join(each.__name__ for each in models), *models) for status, models in found.items()}


@cache
def _described_tag(tag: str) -> type[Wire]:
    name = "FileNotFoundAnswer" if tag == "FileNotFoundError" else tag
    fields: dict[str, Any] = {"tag": (Literal[tag], tag), **_TAGGED[tag][1]}
    return create_model(name, __base__=TaggedAnswer, __doc__=_WRONG_INPUT if "kind" in fields else None, **fields)


# Making the answers.


FAILURE = "opensession.failure"
"""The key in a request's scope where an error is noted for the log, which has it only if the answer is a 5xx."""

MAX_ISSUES = 50
MAX_ECHO_BYTES = 64 * 1024

REQUEST_PARTS: dict[Any, RequestPart] = {"query": "Query", "path": "Params", "header": "Headers", "body": "Payload"}
"""By the part of the request that FastAPI names."""

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
    """With the input, if it is JSON and short enough to be sent back; without secrets, because answers are logged in many
    places."""
    # `path` names the field, without FastAPI's leading `body` or `query`.
    found = error.errors()[:MAX_ISSUES]
    issues = [{"code": issue["type"], "path": list(issue["loc"][1:]), "message": issue["msg"]} for issue in found]
    is_short = not isinstance(error.body, bytes) and len(orjson.dumps(error.body, default=str)) <= MAX_ECHO_BYTES
    received = masked(error.body) if is_short and not holds_key else None
    return rendered(400, bad_request_body(received, issues, REQUEST_PARTS[found[0]["loc"][0]]))


def name_of(error: HTTPException) -> str:
    return _NAMES.get(error.status_code, "HTTPError")


STORAGE_MESSAGE = "The server's database cannot do this now. Nothing was stored; try again later."


def _is_second_api(path: str) -> bool:
    return path.startswith("/api/")


@dataclass(frozen=True)
class Refusal:
    """An answer before a route is reached, as an ASGI application."""

    status: int
    name: str
    message: str
    headers: Mapping[str, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = tagged if _is_second_api(scope["path"]) else named
        await form(self.status, self.name, self.message, dict(self.headers or {}))(scope, receive, send)


def storage_refusal(scope: Scope, error: StorageError) -> Refusal:
    scope[FAILURE] = error
    return Refusal(503, "StorageError", STORAGE_MESSAGE)


_CUT_OFF = "The server stopped before this was done. Look whether it was, and send it again when the server is back."


def answering_cut_off_requests(app: ASGIApp) -> ASGIApp:
    """A request that the end of the server cuts off is answered. uvicorn would answer with a 500, and log a traceback of each."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            if has_begun or scope["type"] != "http":
                raise
            headers = {"Retry-After": str(ServerStopping.retry_after)}
            await Refusal(ServerStopping.status, ServerStopping.name, _CUT_OFF, headers)(scope, receive, send)

    return answer


def install(app: FastAPI) -> None:
    for kind in (ServiceError, RequestValidationError, HTTPException, StorageError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(ClientDisconnect, _client_gone)


async def _answer(request: Request, error: Exception) -> Response:
    """A storage error means that the disk is full, or the database locked or unreachable: nothing was stored."""
    request.scope[FAILURE] = error
    path = request.url.path
    if isinstance(error, HTTPException) and error.status_code in (404, 405):  # the router's
        return first_form(HTTPException(error.status_code, f"There is no route {request.method} {path}", error.headers), path)
    answer = second_form(error) if _is_second_api(path) else first_form(error, path)
    # The traceback's frames hold the refusal, which holds the traceback: a cycle with a body of megabytes that no collector
    # hurries to free.
    traceback.clear_frames(error.__traceback__)
    return answer


async def _client_gone(_request: Request, _error: Exception) -> Response:
    """The client is gone; the status appears only in the audit log."""
    return named(400, "BadRequest", "The body ended before it was complete.")


# The second API's form.


def second_form(error: Exception) -> Response:
    match error:
        case RequestValidationError():
            return _first_issue(error)
        case ServiceError(tag=str(tag)) if error.status != 403:
            return rendered(error.status, masked({"_tag": tag, **error.data}), headers_of(error))
        case BadRequest():
            return tagged(error.status, "InvalidRequestError", error.message, field=_field(error.issues[0]["path"]))
        case SessionNotFound():
            return tagged(404, "SessionNotFoundError", error.message, sessionID=error.session_id)
        case MessageNotFound():
            tag, message_id = "MessageNotFoundError", error.message_id
            return tagged(404, tag, error.message, sessionID=error.session_id, messageID=message_id)
        case ServiceError():
            name = "ForbiddenError" if error.status == 403 else error.name
            return tagged(error.status, name, error.message, headers_of(error))
        case HTTPException():
            return tagged(error.status_code, name_of(error), error.detail)
    return tagged(503, "StorageError", STORAGE_MESSAGE, service="database")


_TAGS = {400: "InvalidRequestError", 503: "ServiceUnavailableError"}


def tagged(status: int, name: str, message: str, headers: dict[str, str] | None = None, **facts: str | None) -> Response:
    """An error as the second API has it. `name`: its name in the first API, or its tag."""
    known = {key: value for key, value in facts.items() if value is not None}
    return rendered(status, masked({"_tag": _TAGS.get(status, name), "message": message, **known}), headers)


def _first_issue(error: RequestValidationError) -> Response:
    """The first thing that is wrong, as OpenCode reports it."""
    issue = error.errors()[0]
    if issue["type"] == "json_invalid":
        return tagged(400, "BadRequest", f"The body is no JSON: {issue['ctx']['error']}", kind="Payload")
    part, *path = issue["loc"]
    return tagged(400, "BadRequest", issue_text(issue["msg"], path), kind=REQUEST_PARTS[part], field=_field(path))


def _field(path: Sequence[str | int]) -> str | None:
    return ".".join(map(str, path)) or None
