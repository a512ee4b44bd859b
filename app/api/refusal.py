"""What the guard answers before a route is reached, in the form of the API that was asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from app.api.errors import STORAGE_MESSAGE, named, note_failure
from app.storage.engine import StorageError


def is_second_api(path: str) -> bool:
    return path.startswith("/api/")


@dataclass(frozen=True)
class Refusal:
    """An ASGI application."""

    status: int
    name: str
    message: str
    headers: Mapping[str, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = named
        if is_second_api(scope["path"]):
            from app.api.v2.errors import tagged as form
        await form(self.status, self.name, self.message, dict(self.headers or {}))(scope, receive, send)


def storage_refusal(scope: Scope, error: StorageError) -> Refusal:
    note_failure(scope, error)
    return Refusal(503, "StorageError", STORAGE_MESSAGE)
