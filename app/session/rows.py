"""Translates between stored rows and values. Pure. A row's body contains everything but the ids, which are in its columns.

A damaged row does not hide others: a damaged message is skipped, a damaged part is replaced by a text that says so.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from app.schema.errors import NotFound
from app.schema.message import MESSAGES, AssistantMessage, Message, MessageWithParts, UserMessage
from app.schema.part import PART, Part, StepFinishPart, StepStartPart, ToolPart
from app.schema.session import Session
from app.schema.tool_state import Completed
from app.session.session_sums import session_sums
from app.storage.bodies import is_valid_body
from app.storage.repositories.message_rows import StoredMessages
from app.storage.repositories.session_rows import fold

log = logging.getLogger(__name__)

DAMAGED = "This part cannot be shown because its stored data is damaged. Run `opensession doctor` for details."
_DAMAGED_BODY = orjson.dumps({"type": "text", "text": DAMAGED, "synthetic": True, "ignored": True}).decode()

_MESSAGE_IDS = {"id", "session_id", "parent_id"}
_PART_IDS = {"id", "session_id", "message_id"}
_SUMS = {"cost", "tokens"}
"""They stand in the head of the row."""
_NOTHING_LIVE: Mapping[str, Part] = {}


def session_row(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "project_id": session.project_id,
        "directory": session.directory,
        "parent_id": session.parent_id,
        "owner": session.owner or "",
        "title_folded": fold(session.title),
        "updated": session.time.updated,
        "body": session.model_dump_json(exclude=_SUMS, exclude_none=True),
        "reverting": session.revert is not None and bool(session.revert.unfinished),
        "path": session.path,
        "archived": bool(session.time.archived),
        **session_sums(session).columns(),
    }


def session_json(row: Mapping[str, Any]) -> bytes:
    whole: str = row["head"] + row["body"][1:]
    return whole.encode()


def message_row(message: Message, input_hash: str | None = None, *, waits: bool = False) -> dict[str, Any]:
    """`waits`: the message is a prompt that needs an answer."""
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
        "live_body": _live_message_body(message),
    }


def _live_message_body(message: Message) -> str | None:
    """Without a prompt's diffs, which contain whole files and are not sent to the model."""
    if not isinstance(message, UserMessage) or message.summary is None or not message.summary.diffs:
        return None
    summary = message.summary.model_copy(update={"diffs": []})
    return message.model_copy(update={"summary": summary}).model_dump_json(exclude=_MESSAGE_IDS, exclude_none=True)


def part_row(part: Part) -> dict[str, Any]:
    return {
        "session_id": part.session_id,
        "message_id": part.message_id,
        "id": part.id,
        "type": part.type,
        "body": part.model_dump_json(exclude=_PART_IDS, exclude_none=True),
        "live_body": _live_body(part),
        "snapshot": part.snapshot if isinstance(part, StepStartPart | StepFinishPart) else None,
    }


def _live_body(part: Part) -> str | None:
    """Without a pruned output, which is not sent to the model."""
    if not isinstance(part, ToolPart) or not isinstance(part.state, Completed) or part.state.time.compacted is None:
        return None
    state = part.state.model_copy(update={"output": "", "metadata": {}, "attachments": None})
    return part.model_copy(update={"state": state}).model_dump_json(exclude=_PART_IDS, exclude_none=True)


def message_json(session_id: str, message_id: str, parent_id: str | None, body: str) -> bytes:
    return _message_json(_quoted(session_id), _quoted(message_id), parent_id, body).encode()


def read_prompt(session_id: str, message_id: str, body: str) -> UserMessage:
    """Raises NotFound if it is damaged."""
    try:
        return UserMessage.model_validate_json(message_json(session_id, message_id, None, body))
    except ValidationError as error:
        raise NotFound(f"Message {message_id} of session {session_id} is damaged") from error


def part_json(session_id: str, message_id: str, part_id: str, body: str) -> bytes:
    return _part_json(_ids_of_part(_quoted(session_id), _quoted(message_id)), part_id, body).encode()


def _message_json(session: str, message: str, parent_id: str | None, body: str) -> str:
    parent = f'"parentID":{_quoted(parent_id)},' if parent_id is not None else ""
    return f'{{"id":{message},"sessionID":{session},{parent}{body[1:]}'


def _part_json(ids: str, part_id: str, body: str) -> str:
    return f'{{"id":{_quoted(part_id)}{ids}{body[1:]}'


def _ids_of_part(session: str, message: str) -> str:
    return f',"sessionID":{session},"messageID":{message},'


def _quoted(value: str) -> str:
    return orjson.dumps(value).decode()


def messages_json(session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[bytes]:
    """Each message with its parts as JSON, spliced from the rows without parsing. `live` are streaming parts: they replace their
    rows, which may lag behind."""
    return [
        f'{{"info":{info},"parts":[{",".join(parts)}]}}'.encode() for info, parts in spliced_messages(session_id, stored, live)
    ]


def spliced_messages(
    session_id: str, stored: StoredMessages, live: Mapping[str, Part] = _NOTHING_LIVE
) -> Iterator[tuple[str, list[str]]]:
    """The same, each message apart from its parts."""
    session, bodies = _quoted(session_id), _bodies_by_message(stored, live)
    for _, message_id, _, parent_id, body, *_ in stored.messages:
        message = _quoted(message_id)
        ids = _ids_of_part(session, message)
        parts = [
            live[part_id].wire_json().decode() if part_id in live else _part_json(ids, part_id, part_body)
            for part_id, part_body in bodies.get(message_id, ())
        ]
        yield _message_json(session, message, parent_id, body), parts


def _bodies_by_message(stored: StoredMessages, live: Mapping[str, Part]) -> dict[str, list[tuple[str, str]]]:
    """Of each part its id and its body, which is empty for a streaming one that has no row."""
    bodies: dict[str, list[tuple[str, str]]] = {}
    for message_id, part_id, body, *_ in stored.parts:
        bodies.setdefault(message_id, []).append((part_id, body))
    written = {part_id for _, part_id, *_ in stored.parts} if live else set()
    for part in live.values():
        if part.id not in written:
            bodies.setdefault(part.message_id, []).append((part.id, ""))
    return bodies


def read_messages(session_id: str, stored: StoredMessages, live: Mapping[str, Part]) -> list[MessageWithParts]:
    """The same as values. Validates all messages at once, which takes half the time of one by one."""
    messages = messages_json(session_id, stored, live)
    try:
        return MESSAGES.validate_json(json_array(messages))
    except ValidationError:
        return [read for message in messages if (read := _read_damaged(session_id, message)) is not None]


def _read_damaged(session_id: str, message: bytes) -> MessageWithParts | None:
    """The readable parts of a damaged message; None if the message itself is damaged."""
    try:
        return MESSAGES.validate_json(json_array([message]))[0]
    except ValidationError:
        raw = orjson.loads(message)
    info, parts = raw["info"], [_readable(part) for part in raw["parts"]]
    try:
        return MESSAGES.validate_python([{"info": info, "parts": parts}])[0]
    except ValidationError:
        log.error("skipped message %s of session %s: damaged", info["id"], session_id)
        return None


def _readable(part: dict[str, Any]) -> dict[str, Any]:
    try:
        PART.validate_python(part)
    except ValidationError:
        log.error("part %s of session %s is damaged", part["id"], part["sessionID"])
        damaged: dict[str, Any] = orjson.loads(_DAMAGED_BODY)
        return {**{name: part[name] for name in ("id", "sessionID", "messageID")}, **damaged}
    return part


def valid_sessions(bodies: Iterable[str]) -> list[bytes]:
    found = []
    for body in bodies:
        if is_valid_body(body):
            found.append(body.encode())
        else:
            log.error("skipped a damaged session; its stored data begins with %.80r", body)
    return found


def without_damage(session_id: str, stored: StoredMessages) -> StoredMessages:
    """Without rows whose body is not valid JSON, so that the rest can be spliced into JSON."""
    if all(is_valid_body(row.body) for rows in (stored.messages, stored.parts) for row in rows):
        return stored
    for row in (*stored.messages, *stored.parts):
        if not is_valid_body(row.body):
            log.error("%s of session %s is damaged", row.id, session_id)
    messages = [row for row in stored.messages if is_valid_body(row.body)]
    parts = [row if is_valid_body(row.body) else _DamagedPart(row.message_id, row.id) for row in stored.parts]
    return StoredMessages(messages, parts, stored.more)


class _DamagedPart(NamedTuple):
    message_id: str
    id: str
    body: str = _DAMAGED_BODY
    type: str = "text"


def json_array(items: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(items)
