"""Functions of the caller's that are called while a prompt runs, plain or `async`."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Literal, TypeVar

from opensession_client.events import StreamedEvent
from opensession_client.models import PermissionRequest, QuestionRequest, ReplyInput

T = TypeVar("T")

PermissionReply = Literal["once", "always", "reject"] | ReplyInput
QuestionReply = list[list[str]] | None
"""For each question the labels that are chosen; None rejects the request."""

OnPermission = Callable[[PermissionRequest], PermissionReply | Awaitable[PermissionReply]]
OnQuestion = Callable[[QuestionRequest], QuestionReply | Awaitable[QuestionReply]]
OnEvent = Callable[[StreamedEvent], Awaitable[None] | None]


async def result_of(returned: T | Awaitable[T]) -> T:
    return await returned if isawaitable(returned) else returned
