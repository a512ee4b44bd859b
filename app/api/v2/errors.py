"""The second API's errors: `{_tag, message}` and what the tag brings with it.

What the services raise is given its tag here; what this API alone knows is a `TaggedError`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ConfigDict
from starlette.exceptions import HTTPException

from app.api.documented import answer
from app.api.errors import REQUEST_PARTS, STORAGE_MESSAGE, headers_of, name_of, rendered
from app.pending.requests import RequestNotPending
from app.pty.errors import PtyNotFound
from app.schema.base import Wire, wire_name
from app.schema.errors import (
    BadRequest,
    MessageNotFound,
    RequestPart,
    ServiceError,
    SessionBusy,
    SessionNotFound,
    issue_text,
)
from app.util.secrets import masked


class TaggedAnswer(Wire):
    model_config = ConfigDict(alias_generator=lambda name: "_tag" if name == "tag" else wire_name(name))

    status: ClassVar[int]

    tag: str
    message: str


class InvalidRequestError(TaggedAnswer):
    """`kind`: the part of the request that is wrong. `field`: what in it; the message says it too."""

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
    """Raised by the routes of this API for what it alone calls an error."""

    def __init__(self, answer: TaggedAnswer) -> None:
        super().__init__(answer.message)
        self.answer = answer


def second_form(error: Exception) -> Response:
    match error:
        case RequestValidationError():
            return _rendered(400, _invalid(error))
        case TaggedError():
            return _rendered(error.answer.status, error.answer)
        case ServiceError():
            return _rendered(error.status, _answer(error), headers_of(error))
        case HTTPException():
            return tagged(error.status_code, name_of(error), error.detail)
    return _rendered(503, ServiceUnavailableError(message=STORAGE_MESSAGE, service="database"))


def _rendered(status: int, answer: TaggedAnswer, headers: dict[str, str] | None = None) -> Response:
    return rendered(status, masked(answer.wire()), headers)


def _invalid(error: RequestValidationError) -> InvalidRequestError:
    """Of the first thing that is wrong, as OpenCode's."""
    issue = error.errors()[0]
    if issue["type"] == "json_invalid":
        return InvalidRequestError(message=f"The body is no JSON: {issue['ctx']['error']}", kind="Payload")
    part, *path = issue["loc"]
    return InvalidRequestError(message=issue_text(issue["msg"], path), kind=REQUEST_PARTS[part], field=_field(path))


def _field(path: Sequence[str | int]) -> str | None:
    return ".".join(map(str, path)) or None


def _answer(error: ServiceError) -> TaggedAnswer:
    match error:
        case BadRequest():
            return InvalidRequestError(message=error.message, field=_field(error.issues[0]["path"]))
        case SessionNotFound():
            return SessionNotFoundError(message=error.message, session_id=error.session_id)
        case MessageNotFound():
            return MessageNotFoundError(message=error.message, session_id=error.session_id, message_id=error.message_id)
        case RequestNotPending(request_id=request_id) if request_id.startswith("que"):
            return QuestionNotFoundError(message=error.message, request_id=request_id)
        case RequestNotPending(request_id=request_id):
            return PermissionNotFoundError(message=error.message, request_id=request_id)
        case PtyNotFound():
            return PtyNotFoundError(message=error.message, pty_id=error.pty_id)
        case SessionBusy():
            return SessionBusyError(message=error.message, session_id=error.session_id)
    if error.status == ForbiddenError.status:
        return ForbiddenError(message=error.message)
    return TaggedAnswer(tag=_TAGS.get(error.status, error.name), message=error.message)


_TAGS = {400: "InvalidRequestError", 503: "ServiceUnavailableError"}


def tagged(status: int, name: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error by the name that it has in the first API."""
    return _rendered(status, TaggedAnswer(tag=_TAGS.get(status, name), message=message), headers)


def described(*answers: type[TaggedAnswer]) -> dict[int | str, dict[str, Any]]:
    """The error answers that a route gives, for the API's description: beside these, any may be a 400 or 401."""
    always: tuple[type[TaggedAnswer], ...] = (InvalidRequestError, UnauthorizedError)
    found: dict[int, list[type[TaggedAnswer]]] = {}
    for each in (*always, *answers):
        found.setdefault(each.status, []).append(each)
    return {status: answer(" or ".join(each.__name__ for each in models), *models) for status, models in found.items()}
