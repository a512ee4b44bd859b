"""Filters a conversation for visitors of a share link. Pure.

Removed are paths of files and projects on the server, system prompts, permissions, synthetic texts for the model, snapshots,
provider metadata and reverted messages. Texts, and the inputs and outputs of tool calls, are unchanged: a path in them is part of
the conversation.
"""

from collections.abc import Sequence
from typing import Any, assert_never

from app.schema.base import Metadata
from app.schema.errors import APIError, ApiErrorData, MessageError
from app.schema.file import FilePart
from app.schema.message import AssistantMessage, Message, MessagePath, MessageWithParts, UserMessage
from app.schema.part import (
    AgentPart,
    CompactionPart,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from app.schema.session import Revert, Session
from app.schema.share import SharedSession
from app.schema.tool_state import Completed, Failed, Pending, Running, ToolState

_SHOWN_METADATA = frozenset(
    {"output", "description", "exit", "diff", "todos", "answers", "matches", "count", "truncated", "preview", "summary"}
)
"""The metadata that clients display for a tool call. Excludes metadata of plugins and MCP tools."""


def shared_session(session: Session) -> SharedSession:
    return SharedSession(id=session.id, title=session.title, version=session.version, time=session.time, summary=session.summary)


def shared_messages(history: Sequence[MessageWithParts], revert: Revert | None) -> list[MessageWithParts]:
    """Also removes prompts without any visible part."""
    messages = [_message(message) for message in _not_reverted(history, revert)]
    return [message for message in messages if message.parts or isinstance(message.info, AssistantMessage)]


def _not_reverted(history: Sequence[MessageWithParts], revert: Revert | None) -> Sequence[MessageWithParts]:
    at = next((n for n, message in enumerate(history) if revert and message.info.id == revert.message_id), None)
    if revert is None or at is None:
        return history
    if revert.part_id is None:
        return history[:at]
    parts = history[at].parts
    end = next((n for n, part in enumerate(parts) if part.id == revert.part_id), len(parts))
    return [*history[:at], MessageWithParts.model_construct(info=history[at].info, parts=parts[:end])]


def _message(message: MessageWithParts) -> MessageWithParts:
    parts = [shown for part in message.parts if (shown := _part(part))]
    return MessageWithParts.model_construct(info=_info(message.info), parts=parts)


def _info(info: Message) -> Message:
    if isinstance(info, UserMessage):
        return info.model_copy(update={"system": None, "tools": None, "summary": None})
    return info.model_copy(update={"path": MessagePath(cwd="", root=""), "error": _error(info.error)})


def _error(error: MessageError | None) -> MessageError | None:
    """Without the provider's headers and body."""
    if not isinstance(error, APIError):
        return error
    data = error.data
    return APIError(data=ApiErrorData(message=data.message, status_code=data.status_code, is_retryable=data.is_retryable))


def _part(part: Part) -> Part | None:
    match part:
        case TextPart():
            return None if part.synthetic else part.model_copy(update={"metadata": None})
        case ReasoningPart():
            return part.model_copy(update={"metadata": None})
        case ToolPart():
            return part.model_copy(update={"metadata": None, "state": _state(part.state)})
        case FilePart():
            return _file(part)
        case AgentPart():
            return part.model_copy(update={"source": None})
        case SubtaskPart() | CompactionPart():
            return part
        case StepStartPart() | StepFinishPart() | SnapshotPart() | PatchPart() | RetryPart():
            return None
        case _:
            assert_never(part)


def _file(part: FilePart) -> FilePart:
    """The file's name; its content only if the message contains it (a data URL)."""
    url = part.url if part.url.startswith("data:") else ""
    return part.model_copy(update={"url": url, "source": None})


def _state(state: ToolState) -> ToolState:
    match state:
        case Pending():
            return state
        case Running() | Failed():
            return state.model_copy(update={"metadata": _metadata(state.metadata)})
        case Completed():
            attachments = [_file(file) for file in state.attachments or []] or None
            return state.model_copy(update={"metadata": _metadata(state.metadata), "attachments": attachments})
        case _:
            assert_never(state)


def _metadata(metadata: Metadata | None) -> dict[str, Any]:
    return {key: value for key, value in (metadata or {}).items() if key in _SHOWN_METADATA}
