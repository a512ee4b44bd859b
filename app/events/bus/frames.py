"""What SSE clients are sent: frames, whose bytes are made once for all clients of one format.

A part that streams makes two kinds of frame: a full frame is OpenCode's `message.part.updated` with the whole part and its new
text, a delta frame is `message.part.delta` with the new text alone. Merging two frames of one part keeps the newer part and joins
the texts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import orjson

from app.events.bus.base import PREFIX, CursorSeal, Event, EventId, PartDelta
from app.schema.event import EventMessagePartDelta, EventMessagePartUpdated, PartGain
from app.schema.permission import PermissionRequest, PermissionV2Request

if TYPE_CHECKING:
    from app.schema.timeline import TimelineEvent


PIECE_BYTES = 256 * 1024
"""Bytes that are written to a client at once. A larger event is cut, because a connection's buffer copies what it is given."""

HEARTBEAT = "server.heartbeat"


class Format(NamedTuple):
    """How a stream writes its frames. `global_`: each frame names its directory. `ids`: an event with a number is sent with an
    id, which `cursors` seals. `second`: in the form of the second API."""

    global_: bool = False
    ids: bool = False
    cursors: CursorSeal | None = None
    second: bool = False

    def written(self, event_id: EventId, event: Event) -> bytes:
        if self.second and event.type == HEARTBEAT:
            return b": heartbeat\n\n"
        id_ = event_id.wire(self.cursors)
        line = b""
        if self.ids and event.seq is not None:
            line = b"id: %b\n" % (id_[len(PREFIX) :] if self.cursors else b"%d" % event_id.seq)
        return b"%bdata: %b\n\n" % (line, self._data(id_, event))

    def _data(self, event_id: bytes, event: Event) -> bytes:
        if self.second:
            where = b"" if event.directory is None else b'"location":{"directory":%b},' % orjson.dumps(event.directory)
            return b'{"id":"%b","type":"%b",%b"data":%b}' % (event_id, event.type.encode(), where, event.properties)
        data = b'{"id":"%b","type":"%b","properties":%b}' % (event_id, event.type.encode(), event.properties)
        if not self.global_:
            return data
        where = b"" if event.directory is None else b'"directory":%b,' % orjson.dumps(event.directory)
        return b'{%b"payload":%b}' % (where, data)


def pieces(frames: "Iterable[Frame]", form: Format) -> Iterable[bytes]:
    """Frames as they are written: joined, and cut where one is large."""
    written = b"".join([frame.written(form) for frame in frames])
    if len(written) <= PIECE_BYTES:
        return (written,)
    return (written[start : start + PIECE_BYTES] for start in range(0, len(written), PIECE_BYTES))


@dataclass(slots=True)
class EventFrame:
    """`translated`: the second API's events for this one; None until somebody asked for them."""

    event: Event
    id: EventId
    translated: "Sequence[TimelineEvent] | None" = None
    _written: dict[Format, bytes] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def directory(self) -> str | None:
        return self.event.directory

    @property
    def size(self) -> int:
        return len(self.event.payload)

    def written(self, form: Format) -> bytes:
        if (made := self._written.get(form)) is None:
            own = own_written(self.event, form) if form.second else b""
            made = self._written[form] = form.written(self.id, self.event) + own
        return made


@dataclass(slots=True)
class PartFrame:
    """`part`: the part's JSON in a full frame; None in a delta frame."""

    delta: PartDelta
    id: EventId
    text: str
    part: bytes | None = None
    _written: dict[Format, bytes] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def directory(self) -> str:
        return self.delta.directory

    @property
    def size(self) -> int:
        return len(self.text) + (len(self.part) if self.part else 0)

    @property
    def event(self) -> Event:
        delta = self.delta
        if self.part is not None:
            full = EventMessagePartUpdated.around_part(delta.session_id, self.part, self.text)
            return Event.of(full, delta.directory, delta.session_id, journaled=False)
        new_text = PartGain(
            session_id=delta.session_id,
            message_id=delta.message_id,
            part_id=delta.part_id,
            part_type=delta.part_type,
            field=delta.field,
            delta=self.text,
        )
        return Event.of(EventMessagePartDelta(properties=new_text), delta.directory, delta.session_id, journaled=False)

    def written(self, form: Format) -> bytes:
        made = self._written.get(form)
        if made is None:
            made = self._written[form] = form.written(self.id, self.event)
        return made

    def merged_with(self, newer: "PartFrame") -> "PartFrame":
        return PartFrame(newer.delta, newer.id, self.text + newer.text, newer.part)


Frame = EventFrame | PartFrame


# Requests to the user, of which the second API has events of its own beside the first API's.


def own_written(event: Event, form: Format) -> bytes:
    """Empty for an event of which the second API has none of its own."""
    if event.type not in _OWN:
        return b""
    own, translate = _OWN[event.type]
    payload = orjson.dumps({"type": own, "properties": orjson.Fragment(translate(event.properties))})
    return form.written(EventId.behind(event.seq or 0), Event(own, payload, directory=event.directory, journaled=False))


def _v2_request(properties: bytes) -> bytes:
    return PermissionV2Request.of(PermissionRequest.model_validate_json(properties)).wire_json()


_OWN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "permission.asked": ("permission.v2.asked", _v2_request),
    "permission.replied": ("permission.v2.replied", bytes),
    "question.asked": ("question.v2.asked", bytes),
    "question.replied": ("question.v2.replied", bytes),
    "question.rejected": ("question.v2.rejected", bytes),
}
"""By the first API's type of an event: the second API's type, and the function that makes its data of the first's properties."""

OWN_TYPES = {kind: own for kind, (own, _) in _OWN.items()}


# Fewer frames with the same text: deltas are merged before they are sent, and so are frames that wait for a slow client.

log = logging.getLogger(__name__)

BYTES_PER_SECOND = 200_000
SHORTEST_INTERVAL = 0.01


def interval(frame_bytes: int) -> float:
    """Seconds until the part's next frame."""
    return max(SHORTEST_INTERVAL, frame_bytes / BYTES_PER_SECOND)


@dataclass(slots=True)
class _StreamingPart:
    """A part of which a frame was sent a moment ago. The next frame is sent when `pause` ends."""

    waiting: PartDelta
    deltas: bool
    texts: list[str] = field(default_factory=list)
    pause: asyncio.TimerHandle | None = None


class PartMerger:
    """Sends a part's first delta at once, and merges the next ones to a bounded number of bytes a second.

    Listeners are sent full frames, or with `deltas` delta frames. Both are sent a full frame of a part without new text, as of a
    tool that makes progress.
    """

    def __init__(
        self,
        emit: Callable[[PartFrame, bool], None],
        failed: Callable[[PartDelta, bool], None],
        next_id: Callable[[], EventId],
    ) -> None:
        """`emit(frame, deltas)` sends a frame to the listeners of one kind. `failed(delta, deltas)` is called for a delta that
        could not be rendered, which those listeners miss. `next_id` gives each frame its id."""
        self._emit = emit
        self._next_id = next_id
        self._failed = failed
        self._sessions: dict[str, dict[tuple[str, bool], _StreamingPart]] = {}

    def __len__(self) -> int:
        """How many parts are remembered."""
        return sum(map(len, self._sessions.values()))

    def add(self, delta: PartDelta, *, deltas: bool) -> None:
        parts, key = self._sessions.setdefault(delta.session_id, {}), (delta.part_id, deltas)
        part = parts.get(key)
        if part is None:
            part = parts[key] = _StreamingPart(delta, deltas)
        part.waiting = delta
        part.texts.append(delta.text)
        if part.pause is None:
            self._send(part)

    def flush(self, session_id: str) -> None:
        """Sends the deltas that wait, so that an event of the session comes after the text that preceded it."""
        for part in [*self._sessions.get(session_id, {}).values()]:
            if part.texts:
                self._send(part)

    def _send(self, part: _StreamingPart) -> None:
        """Sends the part's waiting deltas, then pauses. A part without any when its pause ends is forgotten."""
        if part.pause is not None:
            part.pause.cancel()
        if not part.texts:
            return self._forget(part)
        delta, text = part.waiting, "".join(part.texts)
        part.texts.clear()
        try:
            frame = PartFrame(delta, self._next_id(), text, None if part.deltas and text else delta.render())
        except Exception:
            log.exception("part %s could not be shown; its listeners are disconnected", delta.part_id)
            self._failed(delta, part.deltas)
            return self._forget(part)
        part.pause = asyncio.get_running_loop().call_later(interval(frame.size), self._send, part)
        return self._emit(frame, part.deltas)

    def _forget(self, part: _StreamingPart) -> None:
        parts = self._sessions[part.waiting.session_id]
        del parts[part.waiting.part_id, part.deltas]
        if not parts:
            del self._sessions[part.waiting.session_id]


def merge_waiting(frames: Iterable[Frame]) -> deque[Frame]:
    """Joins the frames of each part between two events. Events keep their position."""
    merged: deque[Frame] = deque()
    parts: dict[str, PartFrame] = {}
    for frame in frames:
        if isinstance(frame, PartFrame):
            earlier = parts.get(frame.delta.part_id)
            parts[frame.delta.part_id] = earlier.merged_with(frame) if earlier else frame
        else:
            merged.extend(parts.values())
            merged.append(frame)
            parts.clear()
    merged.extend(parts.values())
    return merged
