"""Completes what older versions of OpenCode did not store yet, and closes what was unfinished. Pure, on the JSON values of one
session."""

from typing import Any

from app.context.history import INTERRUPTED
from app.transfer.opencode.records import JsonObject, SourceMessage, SourceSession

_NO_MODEL = {"providerID": "unknown", "modelID": "unknown"}
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
UNFINISHED = {
    "name": "MessageAbortedError",
    "data": {"message": "This answer was unfinished when its session was imported."},
}


def complete(session: SourceSession) -> None:
    """In place. Messages of a role that is not known are left as they are."""
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
    info.setdefault("slug", "")
    info.setdefault("title", "")
    info.setdefault("version", "")
    info.setdefault("directory", session.worktree)
    info.setdefault("projectID", "global")
    summary = info.get("summary")
    if isinstance(summary, dict):
        summary.pop("diffs", None)
        for count in ("additions", "deletions", "files"):
            summary.setdefault(count, 0)


def _complete_answer(session: SourceSession, message: SourceMessage, prompt: JsonObject | None) -> None:
    info, directory = message.info, session.info.get("directory")
    info.setdefault("parentID", prompt["id"] if prompt else "")
    agent = info.get("agent") or info.get("mode") or "build"
    info.setdefault("agent", agent)
    info.setdefault("mode", agent)
    info.setdefault("path", {"cwd": directory, "root": session.worktree or directory})
    for name, value in (("cost", 0), ("tokens", _NO_TOKENS), *_NO_MODEL.items()):
        info.setdefault(name, value)
    if info["time"].get("completed") is None:
        info["time"]["completed"] = _latest_time(message)
        if not info.get("finish"):
            info.setdefault("error", UNFINISHED)


def _complete_prompts(messages: list[SourceMessage]) -> None:
    """The agent and model of a prompt are those of the answer that follows; before OpenCode 1.0 only answers named them."""
    agent: str = "build"
    model: JsonObject = _NO_MODEL
    for message in reversed(messages):
        info = message.info
        if info.get("role") == "assistant" and not info.get("summary"):
            agent, model = info["agent"], {"providerID": info["providerID"], "modelID": info["modelID"]}
        elif info.get("role") == "user":
            info.setdefault("agent", agent)
            info.setdefault("model", model)


def _complete_part(part: JsonObject, now: int) -> None:
    """`now`: when an open part is taken to have ended."""
    match part.get("type"):
        case "text" | "reasoning":
            _close_text(part, now)
        case "tool" if isinstance(part.get("state"), dict):
            part["state"] = _closed_call(part["state"], now)
        case "compaction":
            part.setdefault("auto", False)
        case "step-finish":
            part.setdefault("cost", 0)
            part.setdefault("tokens", _NO_TOKENS)
            part.setdefault("reason", "unknown")
        case _:
            pass


def _close_text(part: JsonObject, now: int) -> None:
    if part["type"] == "reasoning":
        part.setdefault("time", {"start": now})
    time = part.get("time")
    if isinstance(time, dict) and time.get("end") is None:
        time["end"] = max(now, _number(time, "start"))


def _closed_call(state: JsonObject, now: int) -> JsonObject:
    if state.get("status") in ("pending", "running"):
        start = _number(state.get("time"), "start") or now
        kept = {"metadata": state["metadata"]} if state.get("metadata") else {}
        failed = {"status": "error", "input": state.get("input") or {}, "error": INTERRUPTED}
        return {**failed, **kept, "time": {"start": start, "end": max(start, now)}}
    state.setdefault("input", {})
    if state.get("status") == "completed":
        state.setdefault("title", "")
        state.setdefault("metadata", {})
    return state


def _latest_time(message: SourceMessage) -> int:
    """The newest time that a message and its parts name."""
    own = [_number(message.info.get("time"), name) for name in ("created", "completed")]
    spans = [part.get("time") for _, part in message.parts]
    spans += [part["state"].get("time") for _, part in message.parts if isinstance(part.get("state"), dict)]
    return max([*own, *(_number(span, name) for span in spans for name in ("start", "end"))])


def _number(value: Any, name: str) -> int:
    found = value.get(name) if isinstance(value, dict) else None
    return int(found) if isinstance(found, int | float) else 0
