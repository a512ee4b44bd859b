"""Makes a valid history of what a reader found. As little as possible is left out, and all of that is reported. Pure."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.schema.message import MESSAGE, MessageWithParts
from app.schema.part import PART, Part
from app.schema.session import FileDiff, Session, Todo
from app.transfer.document import SessionHistory
from app.transfer.newer_shapes import as_stored
from app.transfer.opencode.completed import complete
from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceSession

T = TypeVar("T")

_SESSION: TypeAdapter[Session] = TypeAdapter(Session)
_TODO: TypeAdapter[Todo] = TypeAdapter(Todo)
_DIFF: TypeAdapter[FileDiff] = TypeAdapter(FileDiff)
_TAGS = ("role", "type")


def history_of(source: SourceSession) -> tuple[SessionHistory | None, list[Problem]]:
    """None if the session itself cannot be read. Changes `source`."""
    problems: list[Problem] = []
    _drop_unusable(source, problems)
    complete(source)
    as_stored(_as_document(source))
    session = _valid(_SESSION, source.info, source.where, problems)
    if session is None:
        return None, problems
    messages = [read for message in source.messages if (read := _message(message, problems)) is not None]
    _drop_lost_revert(session, messages, source.where, problems)
    todos = _valid_items(_TODO, source.todos, f"{source.where} (todos)", problems)
    diffs = _valid_items(_DIFF, source.diffs, f"{source.where} (diffs)", problems)
    return SessionHistory.model_construct(info=session, messages=messages, todo=todos, diff=diffs), problems


def _drop_unusable(source: SourceSession, problems: list[Problem]) -> None:
    """What the completion cannot work on: times and states of another shape."""
    usable = []
    for message in source.messages:
        if isinstance(message.info.get("time", {}), dict):
            usable.append(message)
        else:
            problems.append(Problem(message.where, "time: is no object"))
    source.messages = usable


def _as_document(source: SourceSession) -> JsonObject:
    messages = [{"info": message.info, "parts": [part for _, part in message.parts]} for message in source.messages]
    return {"info": source.info, "messages": messages, "todo": source.todos, "diff": source.diffs}


def _message(message: SourceMessage, problems: list[Problem]) -> MessageWithParts | None:
    info = _valid(MESSAGE, message.info, message.where, problems)
    if info is None:
        return None
    parts: list[Part] = []
    for where, part in message.parts:
        valid = _valid(PART, part, where, problems)
        parts += [valid] if valid is not None else []
    return MessageWithParts.model_construct(info=info, parts=parts)


def _drop_lost_revert(session: Session, messages: Sequence[MessageWithParts], where: str, problems: list[Problem]) -> None:
    if session.revert and session.revert.message_id not in {message.info.id for message in messages}:
        problems.append(Problem(where, f"revert: there is no message {session.revert.message_id}"))
        session.revert = None


def _valid_items(adapter: TypeAdapter[T], values: Sequence[Any], where: str, problems: list[Problem]) -> list[T]:
    items = [_valid(adapter, value, where, problems) for value in values]
    return [item for item in items if item is not None]


def _valid(adapter: TypeAdapter[T], value: Any, where: str, problems: list[Problem]) -> T | None:
    """Without the fields that are not valid, if it is valid without them."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        wrong = [(_path(value, each["loc"]), each["msg"]) for each in error.errors(include_url=False, include_context=False)]
    rest = (
        {name: kept for name, kept in value.items() if name not in {path[0] for path, _ in wrong if path}}
        if isinstance(value, dict)
        else value
    )
    problems.extend(Problem(where, f"{'.'.join(path)}: {message}" if path else message) for path, message in wrong)
    try:
        return adapter.validate_python(rest)
    except ValidationError:
        return None


def _path(value: Any, location: tuple[int | str, ...]) -> list[str]:
    """Without the name of the union's member, which is no field."""
    tags = [value.get(tag) for tag in _TAGS] if isinstance(value, dict) else []
    return [str(step) for step in (location[1:] if location and location[0] in tags else location)]
