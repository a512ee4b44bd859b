"""Translates between stored rows and values, and makes the text that is searched. Pure. A row's body contains everything but the
ids, which are in its columns.

A damaged row does not hide others: a damaged message or part is left out, and the log names it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from app.record.repositories.message_rows import StoredMessages
from app.record.repositories.session_rows import session_value
from app.record.tables import parsed
from app.record.text_search import LARGEST, fold
from app.schema.base import Wire
from app.schema.errors import NotFound, ServiceError
from app.schema.message import MESSAGES, AssistantMessage, Message, MessageWithParts, UserMessage
from app.schema.part import PART, Completed, ModelRef, Part, StepFinishPart, StepStartPart, ToolPart
from app.schema.session import Session
from app.sessions.usage import session_sums


class LastPrompt(Wire):
    agent: str
    model: ModelRef


@dataclass(frozen=True, slots=True)
class PromptedSession:
    """`newest_prompt`: its JSON; None before the first prompt."""

    session: Session
    newest_prompt: str | None

    @property
    def last_prompt(self) -> LastPrompt | None:
        """None also for a damaged prompt."""
        try:
            return LastPrompt.model_validate_json(self.newest_prompt) if self.newest_prompt else None
        except ValidationError:
            return None

    @property
    def last_model(self) -> ModelRef | None:
        """The newest prompt's model; before the first prompt, the model that the session was created with."""
        last = self.last_prompt
        return last.model if last else model_of_session(self.session)


def model_of_session(session: Session) -> ModelRef | None:
    """The model that the session was created with."""
    model = session.model
    return ModelRef(provider_id=model.provider_id, model_id=model.id) if model else None


# The searched text: a part's text as people and models wrote it. Pure.

Kind = Literal["text", "reasoning", "tool"]

MAX_CHARACTERS = 100_000
"""How many characters of each part's text are searched, from its beginning."""


@dataclass(frozen=True, slots=True)
class SearchedText:
    """`time`: when the part began, in milliseconds; None if the part does not say."""

    kind: Kind
    text: str
    time: int | None


def searched_text(body: str) -> SearchedText | None:
    """What is searched of a part that is stored in full. None if nothing is, as of files, the server's own texts, and tool calls
    that have not ended."""
    part = parsed(body) or {}
    match part:
        case {"type": "text"} if not part.get("synthetic") and not part.get("ignored"):
            found = _searched("text", [part.get("text")], part)
        case {"type": "subtask"}:
            found = _searched("text", [part.get("description"), part.get("prompt")], part)
        case {"type": "reasoning"}:
            found = _searched("reasoning", [part.get("text")], part)
        case {"type": "tool", "state": {"status": "completed" | "error"} as state}:
            texts = [state.get("title"), *_strings(state.get("input")), state.get("output"), state.get("error")]
            found = _searched("tool", texts, state)
        case _:
            return None
    return found if found.text.strip() else None


def text_row(part: Mapping[str, Any], created: int) -> dict[str, Any] | None:
    """The index's row for a part's row. `created`: the time of a part that has none of its own."""
    found = searched_text(part["body"])
    if found is None:
        return None
    ids = {"of_session": part["session_id"], "of_message": part["message_id"], "of_part": part["id"]}
    time = min(found.time or created, LARGEST)  # clients may say any
    return {**ids, "kind": found.kind, "time": time, "text": encode(found.text)}


def created_time(message_body: str) -> int:
    """When a message was made, in milliseconds; 0 if it is damaged."""
    span = (parsed(message_body) or {}).get("time")
    created = span.get("created") if isinstance(span, dict) else None
    return int(created) if isinstance(created, int | float) else 0


def _searched(kind: Kind, texts: list[Any], timed: Mapping[str, Any]) -> SearchedText:
    span = timed.get("time")
    start = span.get("start") if isinstance(span, dict) else None
    text = "\n".join(text for text in texts if isinstance(text, str) and text)
    return SearchedText(kind, text[:MAX_CHARACTERS], int(start) if isinstance(start, int | float) else None)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


_FIRST, _LAST = 0x3040, 0x9FFF
"""Kana and the ideographs in common use."""
_HEADS, _TAILS = "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ"
"""A code begins with one of _HEADS and goes on with three of _TAILS, so no code occurs across two others."""


class _Codes(dict[int, str | int]):
    def __missing__(self, point: int) -> str | int:
        if not _FIRST <= point <= _LAST:
            return self.setdefault(point, point)
        number, last = divmod(point - _FIRST, 20)
        number, third = divmod(number, 20)
        head, second = divmod(number, 20)
        return self.setdefault(point, _HEADS[head] + _TAILS[second] + _TAILS[third] + _TAILS[last])


_CODES = _Codes()


def encode(text: str) -> str:
    """What the search index holds of a text, and of a word that is looked for.

    Both indexes, SQLite's trigrams and PostgreSQL's pg_trgm, know sequences of three characters. But Chinese and Japanese words
    often have one or two, and pg_trgm knows letters beyond ASCII only if the database's locale does. So each of these characters
    becomes four ASCII capitals, which folded text does not have: a word is found in a text if and only if its code is."""
    folded = fold(text)
    return folded if folded.isascii() else folded.translate(_CODES)


log = logging.getLogger(__name__)

_MESSAGE_IDS = {"id", "session_id", "parent_id"}
_PART_IDS = {"id", "session_id", "message_id"}
_SUMS = {"cost", "tokens"}
"""Fields that are columns."""
_NOTHING_LIVE: Mapping[str, Part] = {}


class DamagedSession(ServiceError):
    """The stored value is no session."""

    name = "StorageError"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"What is stored of session {session_id} is damaged. `opensession doctor` on the server tells more.")


class DamagedMessage(NotFound):
    def __init__(self, session_id: str, message_id: str) -> None:
        super().__init__(f"Message {message_id} of session {session_id} is damaged")


# Values to rows.


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
        **session_sums(session)._asdict(),
    }


def message_row(message: Message, input_hash: str | None = None, *, waits: bool = False) -> dict[str, Any]:
    """`waits`: the message is a prompt that needs an answer. Its `live_body` is without a prompt's diffs, which contain whole
    files and are not sent to the model."""
    assistant = message if isinstance(message, AssistantMessage) else None
    live_body = None
    if isinstance(message, UserMessage) and message.summary is not None and message.summary.diffs:
        live = message.model_copy(update={"summary": message.summary.model_copy(update={"diffs": []})})
        live_body = live.model_dump_json(exclude=_MESSAGE_IDS, exclude_none=True)
    return {
        "session_id": message.session_id,
        "id": message.id,
        "role": message.role,
        "parent_id": assistant.parent_id if assistant else None,
        "open": assistant.time.completed is None if assistant else waits,
        "boundary": assistant is not None and bool(assistant.summary and assistant.finish) and assistant.error is None,
        "input_hash": input_hash,
        "body": message.model_dump_json(exclude=_MESSAGE_IDS, exclude_none=True),
        "live_body": live_body,
    }


def part_row(part: Part) -> dict[str, Any]:
    """Its `live_body` is without a pruned output, which is not sent to the model."""
    live_body = None
    if isinstance(part, ToolPart) and isinstance(part.state, Completed) and part.state.time.compacted is not None:
        state = part.state.model_copy(update={"output": "", "metadata": {}, "attachments": None})
        live_body = part.model_copy(update={"state": state}).model_dump_json(exclude=_PART_IDS, exclude_none=True)
    return {
        "session_id": part.session_id,
        "message_id": part.message_id,
        "id": part.id,
        "type": part.type,
        "body": part.model_dump_json(exclude=_PART_IDS, exclude_none=True),
        "live_body": live_body,
        "snapshot": part.snapshot if isinstance(part, StepStartPart | StepFinishPart) else None,
    }


# Rows to values.


def session_values(stored: Iterable[Any]) -> list[dict[str, Any]]:
    """The JSON of sessions that are not damaged."""
    found = []
    for row in stored:
        value = session_value(row)
        if value is None:
            log.error("skipped a damaged session; its stored data begins with %.80r", row.body)
        else:
            found.append(value)
    return found


def read_session(session_id: str, row: Any) -> Session:
    """Raises DamagedSession."""
    try:
        return Session.model_validate(session_value(row))
    except ValidationError as error:
        raise DamagedSession(session_id) from error


def read_sessions(stored: Iterable[Any]) -> list[Session]:
    """The sessions that are not damaged."""
    found = []
    for value in session_values(stored):
        try:
            found.append(Session.model_validate(value))
        except ValidationError as error:
            log.error("skipped a damaged session: %s", error)
    return found


def message_value(session_id: str, message_id: str, parent_id: str | None, body: str) -> dict[str, Any] | None:
    """The JSON of a message; None for a damaged one."""
    ids = {"id": message_id, "sessionID": session_id}
    return _value(ids if parent_id is None else {**ids, "parentID": parent_id}, body)


def part_value(session_id: str, message_id: str, part_id: str, body: str) -> dict[str, Any] | None:
    """The JSON of a part; None for a damaged one."""
    return _value({"id": part_id, "sessionID": session_id, "messageID": message_id}, body)


def _value(ids: dict[str, Any], body: str) -> dict[str, Any] | None:
    content = parsed(body)
    if content is None:
        _say_damaged(ids)
        return None
    return {**ids, **content}


def _say_damaged(value: Mapping[str, Any]) -> None:
    log.error("%s of session %s is damaged, and left out", value["id"], value["sessionID"])


def message_values(session_id: str, stored: StoredMessages, live: Mapping[str, Part] = _NOTHING_LIVE) -> list[dict[str, Any]]:
    """The JSON of each message with its parts, without damaged ones. `live`: streaming parts, which replace their rows, as those
    may lag behind."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for message_id, part_id, _, body in stored.parts:  # by name it would take twice as long
        part = live[part_id].wire() if part_id in live else part_value(session_id, message_id, part_id, body)
        if part is not None:
            parts.setdefault(message_id, []).append(part)
    written = {row.id for row in stored.parts} if live else set()
    for new in live.values():
        if new.id not in written:
            parts.setdefault(new.message_id, []).append(new.wire())
    found = []
    for _, message_id, _, parent_id, body in stored.messages:
        info = message_value(session_id, message_id, parent_id, body)
        if info is not None:
            found.append({"info": info, "parts": parts.get(info["id"], [])})
    return found


def read_messages(session_id: str, stored: StoredMessages, live: Mapping[str, Part] = _NOTHING_LIVE) -> list[MessageWithParts]:
    """As `message_values`, but as values. Validates all messages at once, which takes half the time of one by one."""
    values = message_values(session_id, stored, live)
    try:
        return MESSAGES.validate_python(values)
    except ValidationError:
        return [read for value in values for read in _sound(value)]


def _sound(value: dict[str, Any]) -> list[MessageWithParts]:
    """The message without its damaged parts; nothing if it is damaged itself."""
    try:
        return MESSAGES.validate_python([{**value, "parts": [part for part in value["parts"] if _is_sound(part)]}])
    except ValidationError:
        _say_damaged(value["info"])
        return []


def _is_sound(part: dict[str, Any]) -> bool:
    try:
        PART.validate_python(part)
    except ValidationError:
        _say_damaged(part)
        return False
    return True


def read_prompt(session_id: str, message_id: str, body: str) -> UserMessage:
    """Raises NotFound if the prompt is damaged."""
    try:
        return UserMessage.model_validate(message_value(session_id, message_id, None, body))
    except ValidationError as error:
        raise DamagedMessage(session_id, message_id) from error


def json_array(items: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(items)
