"""Events of the second API about a message, made of the message as it is now. Pure.

Each happening belongs to one moment of one record: a message or a tool call that began, or a message, text or tool call that
ended. The journal says when that moment was; without it, the happenings of a message come in the order of its content.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, assert_never

import orjson

from app.events.bus.base import EventId
from app.schema import timeline as v2

# The number of an event within its session: `seq` in the second API, a cursor to resume from. An event of the journal is numbered
# by its position there, so that numbers ascend as events are committed, on whatever server. A digest of the event is in the
# number too, to find the event among the stored messages when the journal no longer has it. What was stored before the journal
# begins is counted from 1. 53 bits, which JavaScript counts exactly:
# | 31 journal | 2 position in the journal's event | 20 digest |

_DIGEST_BITS = 20
_POSITION_BITS = 2
LARGEST = (1 << 53) - 1


class JournalPlace(NamedTuple):
    """The parts of a number. `journal_seq` 0: before the journal; else `digest` is the event's."""

    journal_seq: int
    digest: int


def event_number(journal_seq: int, position: int, digest: int) -> int:
    return (journal_seq << (_DIGEST_BITS + _POSITION_BITS)) | (position << _DIGEST_BITS) | digest


def place_of(seq: int) -> JournalPlace:
    journal_seq = seq >> (_DIGEST_BITS + _POSITION_BITS)
    return JournalPlace(journal_seq, seq & ((1 << _DIGEST_BITS) - 1))


def id_of_number(seq: int) -> EventId:
    """The id of the event with a number; a client with it resumes after the journal's event."""
    return EventId(place_of(seq).journal_seq, 1 + (seq & ((1 << (_DIGEST_BITS + _POSITION_BITS)) - 1)))


def digest_of(record: str, event_type: str) -> int:
    return zlib.crc32(f"{event_type} {record}".encode()) & ((1 << _DIGEST_BITS) - 1)


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


def happenings(message: v2.SessionMessage, delivery: v2.Delivery = "steer") -> list[Happening]:
    """What the message tells, in the order in which it happened."""
    match message:
        case v2.SessionMessageUser():
            return _of_user(message, delivery)
        case v2.SessionMessageSynthetic():
            data = {"messageID": message.id, "text": message.text}
            return [_happening(message.id, Phase.BEGUN, "synthetic", message.time.created, data)]
        case v2.SessionMessageShell():
            return list(_of_shell(message))
        case v2.SessionMessageCompaction():
            return _of_compaction(message)
        case v2.SessionMessageAssistant():
            return list(_of_assistant(message))
    assert_never(message)


def _happening(record: str, phase: Phase, name: str, time: int, data: dict[str, Any]) -> Happening:
    return Happening(Moment(record, phase), PREFIX + name, time, data)


def _of_user(message: v2.SessionMessageUser, delivery: v2.Delivery) -> list[Happening]:
    prompt = v2.PromptV2(text=message.text, files=message.files, agents=message.agents)
    data = {"messageID": message.id, "prompt": prompt.wire(), "delivery": delivery}
    names = ("prompt.admitted", "prompted")
    return [_happening(message.id, Phase.BEGUN, name, message.time.created, data) for name in names]


def _of_shell(message: v2.SessionMessageShell) -> Iterator[Happening]:
    call = {"callID": message.call_id}
    begun = {"messageID": message.id, **call, "command": message.command}
    yield _happening(message.call_id, Phase.BEGUN, "shell.started", message.time.created, begun)
    if message.time.completed is not None:
        yield _happening(message.call_id, Phase.ENDED, "shell.ended", message.time.completed, {**call, "output": message.output})


def _of_compaction(message: v2.SessionMessageCompaction) -> list[Happening]:
    """Both when the summary is complete: a summary that fails is none."""
    begun = {"messageID": message.id, "reason": message.reason}
    ended = {**begun, "text": message.summary, "recent": message.recent}
    of = (message.id, Phase.ENDED)
    time = message.time.created
    return [_happening(*of, "compaction.started", time, begun), _happening(*of, "compaction.ended", time, ended)]


def _of_assistant(message: v2.SessionMessageAssistant) -> Iterator[Happening]:
    of = {"assistantMessageID": message.id}
    begun = {**of, "agent": message.agent, "model": message.model.wire()}
    yield _happening(message.id, Phase.BEGUN, "step.started", message.time.created, begun)
    for content in message.content:
        match content:
            case v2.AssistantText():
                yield from _of_text(of, content, message.time.created)
            case v2.AssistantReasoning():
                yield from _of_reasoning(of, content)
            case v2.AssistantTool():
                yield from _of_tool(of, content)
    if message.time.completed is not None:
        yield _step_end(of, message, message.time.completed)


def _of_text(of: dict[str, Any], content: v2.AssistantText, time: int) -> Iterator[Happening]:
    data = {**of, "textID": content.id}
    yield _happening(content.id, Phase.ENDED, "text.started", time, data)
    yield _happening(content.id, Phase.ENDED, "text.ended", time, {**data, "text": content.text})


def _of_reasoning(of: dict[str, Any], content: v2.AssistantReasoning) -> Iterator[Happening]:
    data, time = {**of, "reasoningID": content.id}, content.time
    yield _happening(content.id, Phase.ENDED, "reasoning.started", time.created, data)
    ended = {**data, "text": content.text}
    yield _happening(content.id, Phase.ENDED, "reasoning.ended", time.completed or time.created, ended)


def _of_tool(of: dict[str, Any], tool: v2.AssistantTool) -> Iterator[Happening]:
    state, call = tool.state, {**of, "callID": tool.id}
    if isinstance(state, v2.ToolStatePending):
        return
    began, provider = tool.time.ran or tool.time.created, {"provider": tool.provider.wire()}
    text = orjson.dumps(state.input).decode()
    yield _happening(tool.id, Phase.BEGUN, "tool.input.started", tool.time.created, {**call, "name": tool.name})
    yield _happening(tool.id, Phase.BEGUN, "tool.input.ended", began, {**call, "text": text})
    called = {**call, "tool": tool.name, "input": state.input, **provider}
    yield _happening(tool.id, Phase.BEGUN, "tool.called", began, called)
    ended = tool.time.completed or began
    match state:
        case v2.ToolStateCompleted():
            content = [piece.wire() for piece in state.content]
            success = {**call, "structured": state.structured, "content": content, **provider}
            yield _happening(tool.id, Phase.ENDED, "tool.success", ended, success)
        case v2.ToolStateError():
            yield _happening(tool.id, Phase.ENDED, "tool.failed", ended, {**call, "error": state.error.wire(), **provider})


def _step_end(of: dict[str, Any], message: v2.SessionMessageAssistant, time: int) -> Happening:
    if message.error is not None:
        return _happening(message.id, Phase.ENDED, "step.failed", time, {**of, "error": message.error.wire()})
    snapshot = message.snapshot
    trees = {"snapshot": snapshot.end, "files": snapshot.files} if snapshot else {}
    usage = {"cost": message.cost, "tokens": message.tokens.wire() if message.tokens else None}
    known = {name: value for name, value in trees.items() if value is not None}
    data = {**of, "finish": message.finish or "unknown", **usage, **known}
    return _happening(message.id, Phase.ENDED, "step.ended", time, data)


# Translates the journal's events of one session into numbered events of the second API. Pure. The journal says when a message or
# part began or ended; the stored message says what it is. A message that was removed since gives no events. Events of
# `session.next.*` that the journal has itself stay as they are.


class JournalEvent(NamedTuple):
    """`time` in epoch milliseconds."""

    seq: int
    time: int
    type: str
    properties: Mapping[str, Any]


class Mention(NamedTuple):
    """A moment of a message that an event of the journal names."""

    message_id: str
    moment: Moment


def _of_message(properties: Mapping[str, Any]) -> Mention | None:
    """A prompt is stored again with its summary, and an answer when its model has finished: neither is a moment."""
    info = properties["info"]
    phase = Phase.BEGUN
    if info["role"] == "user":
        return None if "summary" in info else Mention(info["id"], Moment(info["id"], phase))
    if "completed" in info["time"]:
        phase = Phase.ENDED
    elif "finish" in info:
        return None
    return Mention(info["id"], Moment(info["id"], phase))


def _of_part(properties: Mapping[str, Any]) -> Mention | None:
    part = properties["part"]
    if part["type"] in ("text", "reasoning"):
        ended = "end" in (part.get("time") or {})
        return Mention(part["messageID"], Moment(part["id"], Phase.ENDED)) if ended else None
    if part["type"] != "tool":
        return None
    phase = _PHASES.get(part["state"]["status"])
    pruned = "compacted" in part["state"].get("time", {})
    return None if phase is None or pruned else Mention(part["messageID"], Moment(part["callID"], phase))


_PHASES = {"running": Phase.BEGUN, "completed": Phase.ENDED, "error": Phase.ENDED}


def _of_queued(properties: Mapping[str, Any]) -> Mention | None:
    message_id = properties.get("messageID")
    return Mention(message_id, Moment(message_id, Phase.BEGUN)) if message_id else None


_MENTIONS: Mapping[str, Callable[[Mapping[str, Any]], Mention | None]] = {
    "message.updated": _of_message,
    "message.part.updated": _of_part,
    "prompt.queued": _of_queued,
    "prompt.dequeued": _of_queued,
}


def is_translated(event_type: str) -> bool:
    """Whether events of the second API may be made of it."""
    return event_type in _MENTIONS or event_type == "session.status" or event_type.startswith(PREFIX)


def mention(event: JournalEvent) -> Mention | None:
    found = _MENTIONS.get(event.type)
    return found(event.properties) if found else None


def translate(
    session_id: str, happened: Mapping[str, Sequence[Happening]], journal: Iterable[JournalEvent]
) -> list[v2.TimelineEvent]:
    """Ascending; each moment once, even if the journal has it twice. `happened`: by the message's id, its happenings."""
    queued: set[str] = set()
    found: dict[tuple[Moment, str], v2.TimelineEvent] = {}
    for event in journal:
        for position, happening in enumerate(_happenings_of(event, happened, queued)):
            key = (happening.moment, happening.type)
            if key not in found:
                seq = event_number(event.seq, position, digest_of(happening.moment.record, happening.type))
                found[key] = session_event(session_id, happening, seq)
    return list(found.values())


def _happenings_of(event: JournalEvent, happened: Mapping[str, Sequence[Happening]], queued: set[str]) -> list[Happening]:
    """Adds to `queued` the prompts that were in the queue: each is admitted then, and becomes a message later."""
    if event.type.startswith(PREFIX):
        data = {name: value for name, value in event.properties.items() if name not in ("sessionID", "timestamp")}
        time = event.properties.get("timestamp", event.time)
        return [Happening(Moment(str(event.seq), Phase.ENDED), event.type, time, data)]
    if event.type == "session.status":
        return _retried(event)
    named = mention(event)
    if named is None:
        return []
    if event.type in ("prompt.queued", "prompt.dequeued"):
        queued.add(named.message_id)
    if event.type == "prompt.dequeued":
        return []
    known = [each for each in happened.get(named.message_id, ()) if each.moment == named.moment]
    if event.type == "prompt.queued":
        return [_delivered_by("queue", each) for each in known if each.type == ADMITTED]
    if named.message_id in queued:
        return [_delivered_by("queue", each) for each in known if each.type != ADMITTED]
    return known


ADMITTED = f"{PREFIX}prompt.admitted"
PROMPTED = f"{PREFIX}prompted"


def _retried(event: JournalEvent) -> list[Happening]:
    status = event.properties["status"]
    if status["type"] != "retry":
        return []
    error = {"message": status["message"], "isRetryable": True}
    data = {"attempt": status["attempt"], "error": error}
    return [Happening(Moment(str(event.seq), Phase.ENDED), f"{PREFIX}retried", event.time, data)]


def _delivered_by(delivery: v2.Delivery, happening: Happening) -> Happening:
    return happening._replace(data={**happening.data, "delivery": delivery}) if "delivery" in happening.data else happening


def session_event(session_id: str, happening: Happening, seq: int) -> v2.TimelineEvent:
    return v2.TimelineEvent(
        id=id_of_number(seq).wire(None).decode(),
        type=happening.type,
        durable=v2.EventNumber(aggregate_id=session_id, seq=seq, version=2 if happening.type in _VERSION_2 else 1),
        data={"timestamp": happening.time, "sessionID": session_id, **happening.data},
    )
