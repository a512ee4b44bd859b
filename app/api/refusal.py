"""What the guard answers before a route is reached, in the form of the API that was asked."""

from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from app.api.errors import STORAGE_MESSAGE, log_storage_error, named
from app.api.v2.errors import is_second_api, tagged
from app.storage.engine import StorageError
from app.util.dataclass import dataclass


@dataclass(frozen=True)
class Refusal:
    """An ASGI application."""

    status: int
    name: str
    message: str
    headers: Mapping[str, str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = tagged if is_second_api(scope["path"]) else named
        await form(self.status, self.name, self.message, dict(self.headers or {}))(scope, receive, send)


def storage_refusal(error: StorageError) -> Refusal:
    log_storage_error(error)
    return Refusal(503, "StorageError", STORAGE_MESSAGE)
