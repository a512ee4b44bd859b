"""Every error becomes JSON, by the path of the request: in the first API's form, `{name, data}` with the status, or in the
second's, `{_tag, message, …}`. Nothing of the server's insides is in a body."""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.record.engine import StorageError
from app.record.repositories.session_rows import UnknownAnchor
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

    status: ClassVar[int]

    tag: str
    message: str


class InvalidRequestError(TaggedAnswer):
    """`kind`: the part of the request that is wrong. `field`: the field in it; the message names it too."""

    status = 400
    tag: Literal["InvalidRequestError"] = "InvalidRequestError"
    kind: RequestPart | None = None
    field: str | None = None


class InvalidCursorError(TaggedAnswer):
    status = 400
    tag: Literal["InvalidCursorError"] = "InvalidCursorError"


class ConflictError(TaggedAnswer):
    status = 409
    tag: Literal["ConflictError"] = "ConflictError"
    resource: str | None = None


class UnauthorizedError(TaggedAnswer):
    status = 401
    tag: Literal["UnauthorizedError"] = "UnauthorizedError"


class ForbiddenError(TaggedAnswer):
    status = 403
    tag: Literal["ForbiddenError"] = "ForbiddenError"


class SessionNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["SessionNotFoundError"] = "SessionNotFoundError"
    session_id: str


class MessageNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["MessageNotFoundError"] = "MessageNotFoundError"
    session_id: str
    message_id: str


class PermissionNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["PermissionNotFoundError"] = "PermissionNotFoundError"
    request_id: str


class QuestionNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["QuestionNotFoundError"] = "QuestionNotFoundError"
    request_id: str


class PtyNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["PtyNotFoundError"] = "PtyNotFoundError"
    pty_id: str


class SessionBusyError(TaggedAnswer):
    status = 409
    tag: Literal["SessionBusyError"] = "SessionBusyError"
    session_id: str


class ServiceUnavailableError(TaggedAnswer):
    status = 503
    tag: Literal["ServiceUnavailableError"] = "ServiceUnavailableError"
    service: str | None = None


class TaggedError(ServiceError):
    """Raised by routes of the second API for errors that the first API does not have."""

    def __init__(self, answer: TaggedAnswer) -> None:
        super().__init__(answer.message)
        self.answer = answer


def described(*answers: type[TaggedAnswer]) -> dict[int | str, dict[str, Any]]:
    """The error answers that a route gives, for the API's description; any route may also answer 400 or 401."""
    always: tuple[type[TaggedAnswer], ...] = (InvalidRequestError, UnauthorizedError)
    found: dict[int, list[type[TaggedAnswer]]] = {}
    for each in (*always, *answers):
        found.setdefault(each.status, []).append(each)
    return {status: described_answer(" or ".join(each.__name__ for each in models), *models) for status, models in found.items()}


# Making the answers.


FAILURE = "opensession.failure"
"""The key in a request's scope where an error is noted for the log, which has it only if the answer is a 5xx."""

MAX_ISSUES = 50
LARGEST_ECHO_BYTES = 64 * 1024

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
    is_short = not isinstance(error.body, bytes) and len(orjson.dumps(error.body, default=str)) <= LARGEST_ECHO_BYTES
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
            return _tagged_answer(400, _invalid_request(error))
        case TaggedError():
            return _tagged_answer(error.answer.status, error.answer)
        case UnknownAnchor():
            return _tagged_answer(InvalidCursorError.status, InvalidCursorError(message=error.message))
        case ServiceError(tag=str(tag)) if error.status != ForbiddenError.status:
            return rendered(error.status, masked({"_tag": tag, **error.data}), headers_of(error))
        case ServiceError():
            return _tagged_answer(error.status, _answer_of(error), headers_of(error))
        case HTTPException():
            return tagged(error.status_code, name_of(error), error.detail)
    return _tagged_answer(503, ServiceUnavailableError(message=STORAGE_MESSAGE, service="database"))


def tagged(status: int, name: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error as the second API has it. `name`: its name in the first API."""
    return _tagged_answer(status, TaggedAnswer(tag=_TAGS.get(status, name), message=message), headers)


def _tagged_answer(status: int, answer: TaggedAnswer, headers: dict[str, str] | None = None) -> Response:
    return rendered(status, masked(answer.wire()), headers)


def _invalid_request(error: RequestValidationError) -> InvalidRequestError:
    """The first thing that is wrong, as OpenCode reports it."""
    issue = error.errors()[0]
    if issue["type"] == "json_invalid":
        return InvalidRequestError(message=f"The body is no JSON: {issue['ctx']['error']}", kind="Payload")
    part, *path = issue["loc"]
    return InvalidRequestError(message=issue_text(issue["msg"], path), kind=REQUEST_PARTS[part], field=_field(path))


def _field(path: Sequence[str | int]) -> str | None:
    return ".".join(map(str, path)) or None


def _answer_of(error: ServiceError) -> TaggedAnswer:
    match error:
        case BadRequest():
            return InvalidRequestError(message=error.message, field=_field(error.issues[0]["path"]))
        case SessionNotFound():
            return SessionNotFoundError(message=error.message, session_id=error.session_id)
        case MessageNotFound():
            return MessageNotFoundError(message=error.message, session_id=error.session_id, message_id=error.message_id)
    if error.status == ForbiddenError.status:
        return ForbiddenError(message=error.message)
    return TaggedAnswer(tag=_TAGS.get(error.status, error.name), message=error.message)


_TAGS = {400: "InvalidRequestError", 503: "ServiceUnavailableError"}
