"""The second API's errors: `{_tag, message}` and what the tag brings with it.

What the services raise is given its tag in `app/api/errors.py`; what this API alone knows is a `TaggedError`.
"""

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from app.api.documented import answer
from app.schema.base import Wire, wire_name
from app.schema.errors import (
    RequestPart,
    ServiceError,
)


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


def described(*answers: type[TaggedAnswer]) -> dict[int | str, dict[str, Any]]:
    """The error answers that a route gives, for the API's description: beside these, any may be a 400 or 401."""
    always: tuple[type[TaggedAnswer], ...] = (InvalidRequestError, UnauthorizedError)
    found: dict[int, list[type[TaggedAnswer]]] = {}
    for each in (*always, *answers):
        found.setdefault(each.status, []).append(each)
    return {status: answer(" or ".join(each.__name__ for each in models), *models) for status, models in found.items()}
