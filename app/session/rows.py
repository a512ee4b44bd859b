"""Between stored rows and values: the pure translation. A row's body holds everything but the ids, which its columns hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from app.schema.message import MESSAGES, AssistantMessage, Message, MessageWithParts
from app.schema.part import PART, Part
from app.schema.session import Session
from app.storage.queries import StoredMessages, fold

_MESSAGE_IDS = {"id", "session_id", "parent_id"}
_PART_IDS = {"id", "session_id", "message_id"}


def session_row(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "project_id": session.project_id,
        "directory": session.directory,
        "parent_id": session.parent_id,
        "title_folded": fold(session.title),
        "updated": session.time.updated,
        "body": session.wire_json().decode(),
    }


def message_row(message: Message, input_hash: str | None = None, *, waits: bool = False) -> dict[str, Any]:
    """`waits`: a prompt that is to be answered."""
    assistant = message if isinstance(message, AssistantMessage) else None
    return {
        "session_id": message.session_id,
        "id": message.id,
        "role": message.role,
        "parent_id": assistant.parent_id if assistant else None,
        "open": assistant.time.completed is None if assistant else waits,
        "boundary": assistant is not None and bool(assistant.summary and assistant.finish) and assistant.error is None,
        "input_hash": input_hash,
        "body": message.model_dump_json(exclude=_MESSAGE_IDS, exclude_none=True),
    }


def part_row(part: Part) -> dict[str, Any]:
    return {
        "session_id": part.session_id,
        "message_id": part.message_id,
        "id": part.id,
        "type": part.type,
        "body": part.model_dump_json(exclude=_PART_IDS, exclude_none=True),
    }


def message_json(session_id: str, message_id: str, parent_id: str | None, body: str) -> bytes:
    parent = b'"parentID":%b,' % orjson.dumps(parent_id) if parent_id is not None else b""
    head = b'{"id":%b,"sessionID":%b,%b' % (orjson.dumps(message_id), orjson.dumps(session_id), parent)
    return head + body.encode()[1:]


def part_json(session_id: str, message_id: str, part_id: str, body: str) -> bytes:
    ids = (orjson.dumps(part_id), orjson.dumps(session_id), orjson.dumps(message_id))
    return b'{"id":%b,"sessionID":%b,"messageID":%b,' % ids + body.encode()[1:]


def messages_json(session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[bytes]:
    """Each message with its parts as JSON, spliced from the rows without reading them. `live` are parts that are streaming: they
    stand in place of their rows, which may be a moment behind."""
    parts: dict[str, list[bytes]] = {row.id: [] for row in stored.messages}
    written = set()
    for row in stored.parts:
        written.add(row.id)
        now = live.get(row.id)
        text = now.wire_json() if now else part_json(session_id, row.message_id, row.id, row.body)
        if row.message_id in parts:
            parts[row.message_id].append(text)
    for part in live.values():
        if part.id not in written and part.message_id in parts:
            parts[part.message_id].append(part.wire_json())
    return [
        b'{"info":%b,"parts":[%b]}' % (message_json(session_id, row.id, row.parent_id, row.body), b",".join(parts[row.id]))
        for row in stored.messages
    ]


def read_messages(session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[MessageWithParts]:
    """The same as values, read in one go: that costs half of what reading them one by one does."""
    return MESSAGES.validate_json(json_array(messages_json(session_id, stored, live)))


def read_parts(session_id: str, rows: Iterable[Any]) -> list[Part]:
    return [PART.validate_json(part_json(session_id, row.message_id, row.id, row.body)) for row in rows]


def json_array(items: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(items)
