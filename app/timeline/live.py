"""The events of `session.next.*` on a stream of all events: those of the journal behind the event that they are made of, and what
a text gains, which the journal does not have."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import orjson

from app.bus.event_id import EventId
from app.bus.frames import EventFrame, Format, Frame, PartFrame, pieces
from app.bus.listener import Listener
from app.timeline import numbers
from app.timeline.events import PREFIX
from app.timeline.service import Timeline
from app.util import clock

_STREAMED = {"text": "textID", "reasoning": "reasoningID"}
_ALREADY_TOLD = frozenset(f"{PREFIX}{kind}.started" for kind in _STREAMED)
"""With the first of what the text gained. The journal has it, with its number, when the text is complete."""


async def written(timeline: Timeline, listener: Listener) -> AsyncIterator[bytes]:
    """What a listener takes, and behind each event what is made of it. Until it is closed."""
    while (frames := await listener.take()) is not None:
        async for piece in with_session_events(timeline, frames, listener.form):
            yield piece


async def with_session_events(timeline: Timeline, frames: Sequence[Frame], form: Format) -> AsyncIterator[bytes]:
    await timeline.tell(frame for frame in frames if isinstance(frame, EventFrame))
    for frame in frames:
        if isinstance(frame, PartFrame) or not frame.event.is_second_only:
            for piece in pieces([frame], form):
                yield piece
        yield b"".join(_beside(frame, form))


def _beside(frame: Frame, form: Format) -> Iterator[bytes]:
    if isinstance(frame, PartFrame):
        yield from _gained(frame, form)
        return
    for event in frame.told or ():
        if event.type not in _ALREADY_TOLD:
            content = {"type": event.type, "durable": event.durable.wire(), "data": event.data}
            yield _encoded(numbers.event_id(event.durable.seq), content, frame.directory, form)


def _gained(frame: PartFrame, form: Format) -> Iterator[bytes]:
    delta = frame.delta
    name = _STREAMED.get(delta.part_type)
    if name is None or not frame.text:
        return
    of = {
        "timestamp": clock.now_ms(),
        "sessionID": delta.session_id,
        "assistantMessageID": delta.message_id,
        name: delta.part_id,
    }
    if delta.size == len(frame.text):
        started = {"type": f"{PREFIX}{delta.part_type}.started", "data": of}
        yield _encoded(EventId.behind(frame.id.seq), started, frame.directory, form)
    gained = {"type": f"{PREFIX}{delta.part_type}.delta", "data": {**of, "delta": frame.text}}
    yield _encoded(EventId.behind(frame.id.seq), gained, frame.directory, form)


def _encoded(event_id: EventId, content: Mapping[str, object], directory: str | None, form: Format) -> bytes:
    id_ = event_id.wire(form.cursors).decode()
    return b"data: %b\n\n" % orjson.dumps({"id": id_, "location": {"directory": directory}, **content})
