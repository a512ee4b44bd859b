"""Functions of the caller's that are called while a prompt runs."""

from collections.abc import Callable
from typing import Literal, TypeVar

from opensession_client.events import StreamedEvent
from opensession_client.models import PermissionRequest, QuestionRequest, ReplyInput

T = TypeVar("T")

PermissionReply = Literal["once", "always", "reject"] | ReplyInput
QuestionReply = list[list[str]] | None
"""For each question the labels that are chosen; None rejects the request."""

OnPermission = Callable[[PermissionRequest], PermissionReply]
OnQuestion = Callable[[QuestionRequest], QuestionReply]
OnEvent = Callable[[StreamedEvent], None]


def result_of(returned: T) -> T:
    """The async client waits for it here."""
    return returned
