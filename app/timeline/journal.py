"""Translates the journal's events of one session into numbered events of the second API. Pure.

The journal says when a message or part began or ended; what it says is read from the stored message. A message that was removed
since says nothing any more. Events of `session.next.*` that the journal has itself go through as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from app.schema.timeline import Delivery, EventNumber, TimelineEvent
from app.timeline import numbers
from app.timeline.events import PREFIX, Happening, Moment, Phase, version_of


class JournalEvent(NamedTuple):
    """`time` in epoch milliseconds."""

    seq: int
    time: int
    type: str
    properties: Mapping[str, Any]


class Mention(NamedTuple):
    """What an event of the journal says of a message."""

    message_id: str
    moment: Moment


_Mentions = Callable[[Mapping[str, Any]], Mention | None]


def _of_message(properties: Mapping[str, Any]) -> Mention | None:
    """A prompt is stored again with its summary, a step's answer when its model has finished: neither is a moment."""
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


_MENTIONS: Mapping[str, _Mentions] = {
    "message.updated": _of_message,
    "message.part.updated": _of_part,
    "prompt.queued": _of_queued,
    "prompt.dequeued": _of_queued,
}


def is_telling(event_type: str) -> bool:
    """Whether something may be told of it."""
    return event_type in _MENTIONS or event_type == "session.status" or event_type.startswith(PREFIX)


def mention(event: JournalEvent) -> Mention | None:
    found = _MENTIONS.get(event.type)
    return found(event.properties) if found else None


class JournalTranslation:
    """`happened`: by the message's id, what is known of it."""

    def __init__(self, session_id: str, happened: Mapping[str, Sequence[Happening]]) -> None:
        self._session_id = session_id
        self._happened = happened
        self._queued: set[str] = set()
        """Prompts that were admitted when they were queued."""

    def events(self, journal: Iterable[JournalEvent]) -> list[TimelineEvent]:
        """Ascending; a moment that the journal tells of twice is told once."""
        found: dict[tuple[Moment, str], TimelineEvent] = {}
        for event in journal:
            for position, happening in enumerate(self._of(event)):
                key = (happening.moment, happening.type)
                if key not in found:
                    found[key] = self._numbered(event, position, happening)
        return list(found.values())

    def _of(self, event: JournalEvent) -> list[Happening]:
        if event.type.startswith(PREFIX):
            data = {name: value for name, value in event.properties.items() if name not in ("sessionID", "timestamp")}
            time = event.properties.get("timestamp", event.time)
            return [Happening(Moment(str(event.seq), Phase.ENDED), event.type, time, data)]
        if event.type == "session.status":
            return _retried(event)
        named = mention(event)
        if named is None:
            return []
        if event.type == "prompt.dequeued":
            self._queued.add(named.message_id)
            return []
        known = [each for each in self._happened.get(named.message_id, ()) if each.moment == named.moment]
        return self._delivered(event.type, named.message_id, known)

    def _delivered(self, event_type: str, message_id: str, known: list[Happening]) -> list[Happening]:
        """A prompt that was queued is admitted then, and becomes a message later."""
        if event_type == "prompt.queued":
            self._queued.add(message_id)
            return [_delivered_by("queue", each) for each in known if each.type == ADMITTED]
        if message_id in self._queued:
            return [_delivered_by("queue", each) for each in known if each.type != ADMITTED]
        return known

    def _numbered(self, event: JournalEvent, position: int, happening: Happening) -> TimelineEvent:
        of = numbers.digest(happening.moment.record, happening.type)
        return session_event(self._session_id, happening, numbers.number(event.seq, position, of))


ADMITTED = f"{PREFIX}prompt.admitted"
PROMPTED = f"{PREFIX}prompted"


def _retried(event: JournalEvent) -> list[Happening]:
    status = event.properties["status"]
    if status["type"] != "retry":
        return []
    error = {"message": status["message"], "isRetryable": True}
    data = {"attempt": status["attempt"], "error": error}
    return [Happening(Moment(str(event.seq), Phase.ENDED), f"{PREFIX}retried", event.time, data)]


def _delivered_by(delivery: Delivery, happening: Happening) -> Happening:
    return happening._replace(data={**happening.data, "delivery": delivery}) if "delivery" in happening.data else happening


def session_event(session_id: str, happening: Happening, seq: int) -> TimelineEvent:
    return TimelineEvent(
        id=numbers.event_id(seq).wire(None).decode(),
        type=happening.type,
        durable=EventNumber(aggregate_id=session_id, seq=seq, version=version_of(happening.type)),
        data={"timestamp": happening.time, "sessionID": session_id, **happening.data},
    )
