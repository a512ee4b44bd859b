"""What happened with a message, as events of the second API, made of what the message is now. Pure.

Each happening belongs to one moment of one record: a message or a tool call that began, or a message, text or tool call that
ended. The journal says when that moment was; without it, the happenings of a message come in the order of its content.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple, assert_never

import orjson

from app.schema.timeline import (
    AssistantReasoning,
    AssistantText,
    AssistantTool,
    Delivery,
    PromptV2,
    SessionMessage,
    SessionMessageAssistant,
    SessionMessageCompaction,
    SessionMessageShell,
    SessionMessageSynthetic,
    SessionMessageUser,
    ToolStateCompleted,
    ToolStateError,
    ToolStatePending,
)

PREFIX = "session.next."

_VERSION_2 = frozenset([f"{PREFIX}step.ended", f"{PREFIX}step.failed"])


class Phase(Enum):
    BEGUN = "begun"
    ENDED = "ended"


class Moment(NamedTuple):
    """`record`: the id of a message or of a text or reasoning part, or of a tool call."""

    record: str
    phase: Phase


class Happening(NamedTuple):
    """`data` without the session's id and the time."""

    moment: Moment
    type: str
    time: int
    data: dict[str, Any]


def version_of(event_type: str) -> int:
    return 2 if event_type in _VERSION_2 else 1


def happenings(message: SessionMessage, delivery: Delivery = "steer") -> list[Happening]:
    """In the order in which they came, as far as the message tells."""
    match message:
        case SessionMessageUser():
            return _of_user(message, delivery)
        case SessionMessageSynthetic():
            data = {"messageID": message.id, "text": message.text}
            return [_happening(message.id, Phase.BEGUN, "synthetic", message.time.created, data)]
        case SessionMessageShell():
            return list(_of_shell(message))
        case SessionMessageCompaction():
            return _of_compaction(message)
        case SessionMessageAssistant():
            return list(_of_assistant(message))
    assert_never(message)


def _happening(record: str, phase: Phase, name: str, time: int, data: dict[str, Any]) -> Happening:
    return Happening(Moment(record, phase), PREFIX + name, time, data)


def prompt_of(message: SessionMessageUser) -> PromptV2:
    return PromptV2(text=message.text, files=message.files, agents=message.agents)


def _of_user(message: SessionMessageUser, delivery: Delivery) -> list[Happening]:
    data = {"messageID": message.id, "prompt": prompt_of(message).wire(), "delivery": delivery}
    names = ("prompt.admitted", "prompted")
    return [_happening(message.id, Phase.BEGUN, name, message.time.created, data) for name in names]


def _of_shell(message: SessionMessageShell) -> Iterator[Happening]:
    call = {"callID": message.call_id}
    begun = {"messageID": message.id, **call, "command": message.command}
    yield _happening(message.call_id, Phase.BEGUN, "shell.started", message.time.created, begun)
    if message.time.completed is not None:
        yield _happening(message.call_id, Phase.ENDED, "shell.ended", message.time.completed, {**call, "output": message.output})


def _of_compaction(message: SessionMessageCompaction) -> list[Happening]:
    """Both when it is complete: a summary that fails is none."""
    begun = {"messageID": message.id, "reason": message.reason}
    ended = {**begun, "text": message.summary, "recent": message.recent}
    of = (message.id, Phase.ENDED)
    time = message.time.created
    return [_happening(*of, "compaction.started", time, begun), _happening(*of, "compaction.ended", time, ended)]


def _of_assistant(message: SessionMessageAssistant) -> Iterator[Happening]:
    of = {"assistantMessageID": message.id}
    begun = {**of, "agent": message.agent, "model": message.model.wire()}
    yield _happening(message.id, Phase.BEGUN, "step.started", message.time.created, begun)
    for content in message.content:
        match content:
            case AssistantText():
                yield from _of_text(of, content, message.time.created)
            case AssistantReasoning():
                yield from _of_reasoning(of, content)
            case AssistantTool():
                yield from _of_tool(of, content)
    if message.time.completed is not None:
        yield _step_end(of, message, message.time.completed)


def _of_text(of: dict[str, Any], content: AssistantText, time: int) -> Iterator[Happening]:
    data = {**of, "textID": content.id}
    yield _happening(content.id, Phase.ENDED, "text.started", time, data)
    yield _happening(content.id, Phase.ENDED, "text.ended", time, {**data, "text": content.text})


def _of_reasoning(of: dict[str, Any], content: AssistantReasoning) -> Iterator[Happening]:
    data, time = {**of, "reasoningID": content.id}, content.time
    yield _happening(content.id, Phase.ENDED, "reasoning.started", time.created, data)
    ended = {**data, "text": content.text}
    yield _happening(content.id, Phase.ENDED, "reasoning.ended", time.completed or time.created, ended)


def _of_tool(of: dict[str, Any], tool: AssistantTool) -> Iterator[Happening]:
    state, call = tool.state, {**of, "callID": tool.id}
    if isinstance(state, ToolStatePending):
        return
    began, provider = tool.time.ran or tool.time.created, {"provider": tool.provider.wire()}
    text = orjson.dumps(state.input).decode()
    yield _happening(tool.id, Phase.BEGUN, "tool.input.started", tool.time.created, {**call, "name": tool.name})
    yield _happening(tool.id, Phase.BEGUN, "tool.input.ended", began, {**call, "text": text})
    called = {**call, "tool": tool.name, "input": state.input, **provider}
    yield _happening(tool.id, Phase.BEGUN, "tool.called", began, called)
    ended = tool.time.completed or began
    match state:
        case ToolStateCompleted():
            content = [piece.wire() for piece in state.content]
            success = {**call, "structured": state.structured, "content": content, **provider}
            yield _happening(tool.id, Phase.ENDED, "tool.success", ended, success)
        case ToolStateError():
            yield _happening(tool.id, Phase.ENDED, "tool.failed", ended, {**call, "error": state.error.wire(), **provider})


def _step_end(of: dict[str, Any], message: SessionMessageAssistant, time: int) -> Happening:
    if message.error is not None:
        return _happening(message.id, Phase.ENDED, "step.failed", time, {**of, "error": message.error.wire()})
    snapshot = message.snapshot
    trees = _known(snapshot=snapshot.end, files=snapshot.files) if snapshot else {}
    usage = {"cost": message.cost, "tokens": message.tokens.wire() if message.tokens else None}
    data = {**of, "finish": message.finish or "unknown", **usage, **trees}
    return _happening(message.id, Phase.ENDED, "step.ended", time, data)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
