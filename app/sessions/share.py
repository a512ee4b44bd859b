"""Share links: read-only access to a session for everyone with the link, until the session is unshared or deleted.

The id in the link is the only secret and cannot be guessed.
"""

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from app.project.config.flags import Flags
from app.project.location import Location
from app.record import tables
from app.record.engine import Connection
from app.record.repositories import message_rows, session_rows
from app.schema.base import Metadata
from app.schema.config import Config
from app.schema.errors import APIError, ApiErrorData, MessageError, NotFound, ServiceError
from app.schema.message import MESSAGES, AssistantMessage, Message, MessagePath, MessageWithParts, SharedSession, UserMessage
from app.schema.part import (
    AgentPart,
    CompactionPart,
    Completed,
    FilePart,
    Part,
    Pending,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    ToolState,
)
from app.schema.session import Revert, Session, Share
from app.sessions import rows
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store

_ID_BYTES = 20
_ID = re.compile(r"[0-9a-f]{40}")


class SharingDisabled(ServiceError):
    status = 403
    name = "SharingDisabledError"
    text = 'Sharing is turned off here, by `"share": "disabled"` in opencode.json or by OPENCODE_DISABLE_SHARE.'


def may_share(config: Config, flags: Flags) -> bool:
    return config.share != "disabled" and not flags.disable_share


def shares_automatically(config: Config, flags: Flags) -> bool:
    """Whether new sessions are shared automatically."""
    return may_share(config, flags) and (config.share == "auto" or flags.auto_share)


class Shares:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rendering = asyncio.Semaphore(1)
        """Bounds the work for visitors, who may be many and need no login."""

    async def share(self, location: Location, session_id: str, base: str) -> Session:
        """Creates a link below the URL `base`, or returns the existing one. Raises NotFound."""

        def share(tx: SessionTx) -> Session:
            session = tx.session()
            share_id = session_rows.share_of(tx.connection, session_id) or secrets.token_hex(_ID_BYTES)
            shared = session.model_copy(update={"share": Share(url=f"{base}/s/{share_id}")})
            if shared != session:
                tx.put_share(share_id)
                tx.update(shared)
            return shared

        return await self._store.write(session_id, location.directory, share)

    async def unshare(self, location: Location, session_id: str) -> Session:
        """Invalidates the link, if there is one. Raises NotFound."""

        def unshare(tx: SessionTx) -> Session:
            session = tx.session()
            if session.share is None:
                return session
            tx.delete_share()
            return tx.edit(lambda session: session.model_copy(update={"share": None}), touch=False)

        return await self._store.write(session_id, location.directory, unshare)

    async def is_shared(self, share_id: str) -> bool:
        return _ID.fullmatch(share_id) is not None and await self._store.query(session_rows.shared_session, share_id) is not None

    async def visit(self, share_id: str) -> bytes:
        """The JSON of a SharedConversation. Raises NotFound, with the same message for every unknown id."""
        async with self._rendering:
            stored = await self._store.query(_read_shared, share_id) if _ID.fullmatch(share_id) else None
            if stored is None:
                raise NotFound("Nothing is shared here: the link is wrong, or the session is no longer shared.")
            live = {part_id: part.model_copy() for part_id, part in self._store.live.of(stored[0].id).items()}
            return await asyncio.to_thread(_render, stored, live)


_SharedRows = tuple[Session, message_rows.StoredMessages, str, str]
"""The session, its messages, and its diff and todos as JSON."""


def _read_shared(connection: Connection, share_id: str) -> _SharedRows | None:
    session_id = session_rows.shared_session(connection, share_id)
    session = session_rows.stored_session(connection, session_id) if session_id else None
    if session_id is None or session is None:
        return None
    diff, todos = (session_rows.body_of(connection, table, session_id) or "[]" for table in (tables.DIFF, tables.TODO))
    return rows.read_session(session_id, session), message_rows.all_messages(connection, session_id), diff, todos


def _render(stored: _SharedRows, live: Mapping[str, Part]) -> bytes:
    session, messages, diff, todos = stored
    history = rows.read_messages(session.id, messages, live)
    return b'{"session":%b,"messages":%b,"diff":%b,"todo":%b}' % (
        shared_session(session).wire_json(),
        MESSAGES.dump_json(shared_messages(history, session.revert), exclude_none=True),
        diff.encode(),
        todos.encode(),
    )


# Filters a conversation for visitors of a share link. Pure. Removes paths of files and projects on the server, system prompts,
# permissions, synthetic texts for the model, snapshots, provider metadata and reverted messages. Keeps texts, and the inputs and
# outputs of tool calls, unchanged: a path in them is part of the conversation.

_SHOWN_METADATA = frozenset(
    {"output", "description", "exit", "diff", "todos", "answers", "matches", "count", "truncated", "preview", "summary"}
)
"""The metadata that clients display for a tool call. Excludes metadata of plugins and MCP tools."""


def shared_session(session: Session) -> SharedSession:
    return SharedSession(id=session.id, title=session.title, version=session.version, time=session.time, summary=session.summary)


def shared_messages(history: Sequence[MessageWithParts], revert: Revert | None) -> list[MessageWithParts]:
    """The messages as visitors see them, without prompts that have no visible part."""
    messages = [_message(message) for message in _not_reverted(history, revert)]
    return [message for message in messages if message.parts or isinstance(message.info, AssistantMessage)]


def _not_reverted(history: Sequence[MessageWithParts], revert: Revert | None) -> Sequence[MessageWithParts]:
    if revert is None:
        return history
    shown = list(takewhile(lambda message: message.info.id != revert.message_id, history))
    if revert.part_id is not None and len(shown) < len(history):
        cut = history[len(shown)]
        parts = list(takewhile(lambda part: part.id != revert.part_id, cut.parts))
        shown.append(MessageWithParts.model_construct(info=cut.info, parts=parts))
    return shown


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
    """None for a part that visitors do not see: a kind of part is hidden unless it stands here."""
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
    return None


def _file(part: FilePart) -> FilePart:
    """The file's name; its content only if the message contains it (a data URL)."""
    url = part.url if part.url.startswith("data:") else ""
    return part.model_copy(update={"url": url, "source": None})


def _state(state: ToolState) -> ToolState:
    if isinstance(state, Pending):
        return state
    shown = state.model_copy(update={"metadata": _metadata(state.metadata)})
    if isinstance(shown, Completed):
        shown.attachments = [_file(file) for file in shown.attachments or []] or None
    return shown


def _metadata(metadata: Metadata | None) -> dict[str, Any]:
    return {key: value for key, value in (metadata or {}).items() if key in _SHOWN_METADATA}
