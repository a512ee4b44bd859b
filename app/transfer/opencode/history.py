"""Makes a valid history of what a reader found: completes what older versions of OpenCode did not store, closes what was
unfinished, and validates the rest. Leaves out as little as possible, and reports all that is left out. Pure."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.schema.message import MESSAGE, MessageWithParts
from app.schema.part import PART, Part
from app.schema.session import FileDiff, Session, Todo
from app.transfer.document import SessionHistory, as_stored, path_in
from app.transfer.importing import UNFINISHED
from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceSession, number
from app.turn.context.history import INTERRUPTED

_PROJECT_ID = re.compile("[0-9A-Za-z_-]{1,100}")
"""A project's id is the name of a folder."""
_NO_MODEL = {"providerID": "unknown", "modelID": "unknown"}
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
_UNFINISHED = UNFINISHED.wire()


def complete(session: SourceSession) -> None:
    """Changes the session. Messages of an unknown role stay as they are."""
    _complete_session(session)
    prompt: JsonObject | None = None
    for message in session.messages:
        message.info["sessionID"] = session.info["id"]
        message.info.setdefault("time", {})
        if message.info.get("role") == "user":
            prompt = message.info
        elif message.info.get("role") == "assistant":
            _complete_answer(session, message, prompt)
        for _, part in message.parts:
            part |= {"sessionID": session.info["id"], "messageID": message.info["id"]}
            _complete_part(part, _latest_time(message))
    _complete_prompts(session.messages)
    for position, todo in enumerate(session.todos):
        if isinstance(todo, dict):
            todo.setdefault("id", str(position + 1))


def _complete_session(session: SourceSession) -> None:
    info = session.info
    time = info["time"] if isinstance(info.get("time"), dict) else {}
    time.pop("compacting", None)
    if "created" in time:
        time.setdefault("updated", time["created"])
    info["time"] = time
    _set_missing(info, slug="", title="", version="", directory=session.worktree, projectID="global")
    summary = info.get("summary")
    if isinstance(summary, dict):
        summary.pop("diffs", None)
        _set_missing(summary, additions=0, deletions=0, files=0)


def _set_missing(values: JsonObject, **defaults: Any) -> None:
    values |= {**defaults, **values}


def _complete_answer(session: SourceSession, message: SourceMessage, prompt: JsonObject | None) -> None:
    info, directory = message.info, session.info.get("directory")
    agent = info.get("agent") or info.get("mode") or "build"
    path = {"cwd": directory, "root": session.worktree or directory}
    _set_missing(info, parentID=prompt["id"] if prompt else "", agent=agent, mode=agent, path=path)
    _set_missing(info, cost=0, tokens=_NO_TOKENS, **_NO_MODEL)
    if info["time"].get("completed") is None:
        info["time"]["completed"] = _latest_time(message)
        if not info.get("finish"):
            info.setdefault("error", {**_UNFINISHED})


def _complete_prompts(messages: list[SourceMessage]) -> None:
    """A prompt gets the agent and model of the answer that follows; before OpenCode 1.0 only answers named them."""
    agent: str = "build"
    model: JsonObject = _NO_MODEL
    for message in reversed(messages):
        info = message.info
        if info.get("role") == "assistant" and not info.get("summary"):
            agent, model = info["agent"], {"providerID": info["providerID"], "modelID": info["modelID"]}
        elif info.get("role") == "user":
            _set_missing(info, agent=agent, model=model)


def _complete_part(part: JsonObject, end: int) -> None:
    """`end`: when the message ended, and so a part without an end of its own."""
    match part.get("type"):
        case "text" | "reasoning":
            _close_text(part, end)
        case "tool" if isinstance(part.get("state"), dict):
            part["state"] = _closed_call(part["state"], end)
        case "compaction":
            part.setdefault("auto", False)
        case "step-finish":
            _set_missing(part, cost=0, tokens=_NO_TOKENS, reason="unknown")


def _close_text(part: JsonObject, end: int) -> None:
    if part["type"] == "reasoning":
        part.setdefault("time", {"start": end})
    time = part.get("time")
    if isinstance(time, dict) and time.get("end") is None:
        time["end"] = max(end, number(time, "start"))


def _closed_call(state: JsonObject, end: int) -> JsonObject:
    if state.get("status") in ("pending", "running"):
        start = number(state.get("time"), "start") or end
        kept = {"metadata": state["metadata"]} if state.get("metadata") else {}
        failed = {"status": "error", "input": state.get("input") or {}, "error": INTERRUPTED}
        return {**failed, **kept, "time": {"start": start, "end": max(start, end)}}
    state.setdefault("input", {})
    if state.get("status") == "completed":
        _set_missing(state, title="", metadata={})
    return state


def _latest_time(message: SourceMessage) -> int:
    """The newest time in a message and its parts."""
    own = [number(message.info.get("time"), name) for name in ("created", "completed")]
    spans = [part.get("time") for _, part in message.parts]
    spans += [part["state"].get("time") for _, part in message.parts if isinstance(part.get("state"), dict)]
    return max([*own, *(number(span, name) for span in spans for name in ("start", "end"))])


T = TypeVar("T")

_SESSION: TypeAdapter[Session] = TypeAdapter(Session)
_TODO: TypeAdapter[Todo] = TypeAdapter(Todo)
_DIFF: TypeAdapter[FileDiff] = TypeAdapter(FileDiff)


def history_of(source: SourceSession) -> tuple[SessionHistory | None, list[Problem]]:
    """None if the session itself cannot be read. Changes `source`."""
    problems: list[Problem] = []
    _drop_messages_without_time(source, problems)
    complete(source)
    listed = [{"info": message.info, "parts": [part for _, part in message.parts]} for message in source.messages]
    as_stored({"info": source.info, "messages": listed, "todo": source.todos, "diff": source.diffs})
    session = _valid(_SESSION, source.info, source.where, problems)
    if session is None:
        return None, problems
    if not session.directory or "\0" in session.directory:
        problems.append(Problem(source.where, "directory: is no path"))
        return None, problems
    if not _PROJECT_ID.fullmatch(session.project_id):
        problems.append(Problem(source.where, "projectID: names no project"))
        session.project_id = "global"
    messages = [read for message in source.messages if (read := _message(message, problems)) is not None]
    if session.revert and session.revert.message_id not in {message.info.id for message in messages}:
        problems.append(Problem(source.where, f"revert: there is no message {session.revert.message_id}"))
        session.revert = None
    todos = _valid_items(_TODO, source.todos, f"{source.where} (todos)", problems)
    diffs = _valid_items(_DIFF, source.diffs, f"{source.where} (diffs)", problems)
    return SessionHistory.model_construct(info=session, messages=messages, todo=todos, diff=diffs), problems


def _drop_messages_without_time(source: SourceSession, problems: list[Problem]) -> None:
    """Drops messages whose time is no object: they cannot be completed. One without the field can be."""
    usable = []
    for message in source.messages:
        if isinstance(message.info.get("time", {}), dict):
            usable.append(message)
        else:
            problems.append(Problem(message.where, "time: is no object"))
    source.messages = usable


def _message(message: SourceMessage, problems: list[Problem]) -> MessageWithParts | None:
    info = _valid(MESSAGE, message.info, message.where, problems)
    if info is None:
        return None
    parts: list[Part] = []
    for where, part in message.parts:
        valid = _valid(PART, part, where, problems)
        parts += [valid] if valid is not None else []
    return MessageWithParts.model_construct(info=info, parts=parts)


def _valid_items(adapter: TypeAdapter[T], values: Sequence[Any], where: str, problems: list[Problem]) -> list[T]:
    items = [_valid(adapter, value, where, problems) for value in values]
    return [item for item in items if item is not None]


def _valid(adapter: TypeAdapter[T], value: Any, where: str, problems: list[Problem]) -> T | None:
    """The value, without its invalid fields if it is valid without them; else None. Reports what is invalid."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        wrong = [(path_in(value, each["loc"]), each["msg"]) for each in error.errors(include_url=False, include_context=False)]
    problems.extend(Problem(where, f"{'.'.join(map(str, path))}: {message}" if path else message) for path, message in wrong)
    fields = {path[0] for path, _ in wrong if path}
    rest = {name: kept for name, kept in value.items() if name not in fields} if isinstance(value, dict) else value
    try:
        return adapter.validate_python(rest)
    except ValidationError:
        return None
