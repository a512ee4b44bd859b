"""Two families of error.

What is stored with a message or sent as `session.error` is a value, closed in `MessageError`:
    ProviderAuthError · UnknownError · MessageOutputLengthError · MessageAbortedError · StructuredOutputError ·
    ContextOverflowError · APIError

What a request is answered with is an exception that carries its facts, its HTTP status and its wire name:
    ServiceError
    ├── BadRequest            400
    ├── InvalidCursor         400  InvalidCursorError
    ├── NotFound              404  NotFoundError: SessionNotFound, MessageNotFound and others
    ├── SessionBusy           409  SessionBusyError
    ├── Aborted               409  SessionAbortedError
    ├── Conflict              409  ConflictError
    ├── DirectoryForbidden    403  DirectoryForbiddenError
    ├── NoAnswer              503  NoAnswerError
    ├── TooMany               429  a name of its own each: TooManyPrompts and others
    ├── TooLarge              413  PayloadTooLargeError
    └── declared beside the code that raises them: agent, provider, config, snapshot …
One handler (api.errors) renders them all as `{name, data}`. Those with a tag have `_tag` and their facts beside it: clients of
OpenCode 1.18 read these.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from app.schema.base import Int64, Wire


class MessageData(Wire):
    message: str


class ProviderAuthData(MessageData):
    provider_id: str


class ApiErrorData(MessageData):
    status_code: Int64 | None = None
    is_retryable: bool
    response_headers: dict[str, str] | None = None
    response_body: str | None = None
    metadata: dict[str, str] | None = None


class ContextOverflowData(MessageData):
    response_body: str | None = None


class EmptyData(Wire):
    pass


class ProviderAuthError(Wire):
    name: Literal["ProviderAuthError"] = "ProviderAuthError"
    data: ProviderAuthData


class UnknownError(Wire):
    name: Literal["UnknownError"] = "UnknownError"
    data: MessageData


class MessageOutputLengthError(Wire):
    name: Literal["MessageOutputLengthError"] = "MessageOutputLengthError"
    data: EmptyData = EmptyData()


class MessageAbortedError(Wire):
    name: Literal["MessageAbortedError"] = "MessageAbortedError"
    data: MessageData


class StructuredOutputData(Wire):
    message: str
    retries: Int64


class StructuredOutputError(Wire):
    """The model gave no answer in the form that its prompt asked for, in the first request and so many retries."""

    name: Literal["StructuredOutputError"] = "StructuredOutputError"
    data: StructuredOutputData


class ContextOverflowError(Wire):
    """The conversation is longer than the model takes, and compacting it did not help or is switched off."""

    name: Literal["ContextOverflowError"] = "ContextOverflowError"
    data: ContextOverflowData


class APIError(Wire):
    name: Literal["APIError"] = "APIError"
    data: ApiErrorData


MessageError = Annotated[
    ProviderAuthError
    | UnknownError
    | MessageOutputLengthError
    | MessageAbortedError
    | StructuredOutputError
    | ContextOverflowError
    | APIError,
    Field(discriminator="name"),
]


def unknown(message: str) -> UnknownError:
    return UnknownError(data=MessageData(message=message))


class ServiceError(Exception):
    """A request that cannot be answered as asked. `message` says what to do; without one it is the class's `text`. `data` is
    rendered beside it."""

    status: ClassVar[int] = 500
    name: str = "UnknownError"
    text: ClassVar[str] = ""
    tag: str | None = None
    is_logged: ClassVar[bool] = False
    """Whether it is logged where it is found, and so not again with each request that it fails."""

    def __init__(self, message: str | None = None, **data: Any) -> None:
        self.message = self.text if message is None else message
        super().__init__(self.message)
        self.data = {"message": self.message, **{key: value for key, value in data.items() if value is not None}}

    def body(self) -> dict[str, Any]:
        tagged = {"_tag": self.tag, **self.data} if self.tag else {}
        return {"name": self.name, "data": self.data, **tagged}


class BadRequest(ServiceError):
    """Input that is well-formed JSON but wrong: names the field in `path`."""

    status = 400
    name = "BadRequest"

    def __init__(self, message: str, path: list[str | int] | None = None, received: Any = None) -> None:
        super().__init__(message)
        self.issues = [{"code": "custom", "path": path or [], "message": message}]
        self.received = received

    def body(self) -> dict[str, Any]:
        return bad_request_body(self.received, self.issues)


RequestPart = Literal["Query", "Params", "Headers", "Payload"]


def bad_request_body(received: Any, issues: list[dict[str, Any]], kind: RequestPart | None = None) -> dict[str, Any]:
    """OpenCode 1.1 documents `errors` and sends `error`, 1.18 has `data.message` and `data.kind`: any client finds its own."""
    first = issues[0]
    data = {"message": issue_text(first["message"], first["path"]), "kind": kind, "received": received}
    known = {name: value for name, value in data.items() if value is not None}
    return {"name": "BadRequest", "data": known, "errors": issues, "error": issues, "success": False}


def issue_text(message: str, path: Sequence[str | int]) -> str:
    """The issue in OpenCode 1.18's form: the place, such as `["parts"][0]["text"]`, has a line of its own."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f'["{step}"]' for step in path)
    return f"{message}\n  at {place}" if place else message


class InvalidCursor(ServiceError):
    """A cursor of the second API that cannot be read, or that stands for an item that is gone."""

    status = 400
    name = "InvalidCursorError"
    tag = "InvalidCursorError"


class NotFound(ServiceError):
    status = 404
    name = "NotFoundError"


class SessionNotFound(NotFound):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session not found: {session_id}")
        self.session_id = session_id


class MessageNotFound(NotFound):
    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(f"Message not found: {message_id} in session {session_id}")
        self.session_id = session_id
        self.message_id = message_id


class SessionBusy(ServiceError):
    status = 409
    name = "SessionBusyError"
    tag = "SessionBusyError"

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"Session {session_id} is busy", sessionID=session_id)


class Aborted(ServiceError):
    """The session was aborted before the request could begin."""

    status = 409
    name = "SessionAbortedError"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id} was aborted", sessionID=session_id)


class NoAnswer(ServiceError):
    """The turn ended here before it could store even an error: the database is out of reach, or the server stops."""

    status = 503
    name = "NoAnswerError"


class Conflict(ServiceError):
    status = 409
    name = "ConflictError"


class TooMany(ServiceError):
    """A limit of the server is reached; the request may be made again after `retry_after` seconds."""

    status = 429
    retry_after: int = 5


class TooManyPrompts(TooMany):
    name = "TooManyPromptsError"

    def __init__(self, session_id: str, most: int) -> None:
        super().__init__(
            f"{most} prompts of {session_id} wait for their answer already (OPENSESSION_MAX_WAITING_PROMPTS). "
            "This one was not stored: send it again when some are answered."
        )


class TooLarge(ServiceError):
    status = 413
    name = "PayloadTooLargeError"


class DirectoryForbidden(ServiceError):
    status = 403
    name = "DirectoryForbiddenError"
