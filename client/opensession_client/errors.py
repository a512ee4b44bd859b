"""What the client raises, besides httpx's own errors for a server that cannot be reached:

OpensessionError
├── ApiError          the server answered with an error
│   ├── LoginRequired   401
│   └── NotFound        404
└── PromptFailed      the turn ended with an error, which is stored with its message
    └── PromptAborted   somebody stopped it
"""

from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

if TYPE_CHECKING:
    from opensession_client.answer import Answer
    from opensession_client.models import MessageError


class OpensessionError(Exception):
    """Of this client."""


class ApiError(OpensessionError):
    """`name` and `data` are the answer's. For a bad request `data` is what was received, and the message names the fields."""

    def __init__(self, status: int, name: str, message: str, data: Any) -> None:
        super().__init__(f"{status} {name}: {message}")
        self.status = status
        self.name = name
        self.message = message
        self.data = data


class LoginRequired(ApiError):
    """The server wants a password or token, or another one."""


class NotFound(ApiError):
    """What the request names is not there, or belongs to somebody else."""


_BY_STATUS: dict[int, type[ApiError]] = {401: LoginRequired, 404: NotFound}


class PromptFailed(OpensessionError):
    """`error` is the stored error, `answer` what there is of the answer."""

    def __init__(self, error: "MessageError", answer: "Answer") -> None:
        super().__init__(f"{error.name}: {getattr(error.data, 'message', 'the answer is too long')}")
        self.error = error
        self.answer = answer


class PromptAborted(PromptFailed):
    """The turn was stopped before its end."""


def api_error(status: int, content: bytes) -> ApiError:
    """Of an answer; a proxy's may be no JSON."""
    try:
        body = from_json(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"data": {"message": content.decode(errors="replace").strip()[:500]}}
    name, data = str(body.get("name", "Error")), body.get("data")
    return _BY_STATUS.get(status, ApiError)(status, name, _message(body), data)


def _message(body: dict[str, Any]) -> str:
    if issues := body.get("errors"):
        return "; ".join(f"{'.'.join(map(str, issue.get('path', ())))}: {issue.get('message')}" for issue in issues)
    data = body.get("data")
    return str(data.get("message", "")) if isinstance(data, dict) else str(data)
