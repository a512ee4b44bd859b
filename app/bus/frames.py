"""What is written to one SSE client: frames, each made once however many clients there are.

A part that streams makes two kinds of frame: OpenCode's `message.part.updated` with the whole part and the text it gained, or
`message.part.delta` with the gained text alone. Merging two frames of one part keeps the newer part and joins the texts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from app.bus import second_api
from app.bus.base import Event, PartDelta
from app.bus.event_id import PREFIX, CursorSeal, EventId
from app.schema.event import EventMessagePartDelta, EventMessagePartUpdated

PIECE_BYTES = 256 * 1024
"""What is written to a client at once. A larger event is cut: a connection's buffer holds a copy of what it is given."""

Written = bytes | memoryview
Encoded = tuple[Written, ...]
"""A frame as it is written: in one piece, or with a large payload, which is never copied, in the middle."""


class Format(NamedTuple):
    """How a stream writes its frames: `global_` with the directory of each, `ids` with the sequence of events that have one, as
    `cursors` write it; `second`: as the second API does."""

    global_: bool = False
    ids: bool = False
    cursors: CursorSeal | None = None
    second: bool = False


def _encode(form: Format, event_id: EventId, payload: bytes, directory: str | None, *, has_sequence: bool = False) -> Encoded:
    id_ = event_id.wire(form.cursors)
    line = b"id: %b\n" % (id_[len(PREFIX) :] if form.cursors else b"%d" % event_id.seq) if form.ids and has_sequence else b""
    if form.second:
        return _of_second(line, id_, payload, directory)
    before = b'%bdata: %b{"id":"%b",' % (line, _wrapping(directory) if form.global_ else b"", id_)
    rest, after = memoryview(payload)[1:], b"}\n\n" if form.global_ else b"\n\n"
    return (b"".join((before, rest, after)),) if len(payload) < PIECE_BYTES else (before, rest, after)


def _of_second(line: bytes, event_id: bytes, payload: bytes, directory: str | None) -> Encoded:
    if second_api.is_heartbeat(payload):
        return (b": heartbeat\n\n",)
    head, rest = second_api.written(event_id, payload, directory)
    before, after = b"%bdata: %b" % (line, head), b"\n\n"
    return (b"".join((before, rest, after)),) if len(payload) < PIECE_BYTES else (before, rest, after)


def _wrapping(directory: str | None) -> bytes:
    return b'{"payload":' if directory is None else b'{"directory":%b,"payload":' % orjson.dumps(directory)


def pieces(frames: "Iterable[Frame]", form: Format) -> Iterator[Written]:
    """Frames as they are written, joined as far as they have about PIECE_BYTES together, and cut where one has more."""
    encoded = [part for frame in frames for part in frame.encoded(form)]
    if sum(map(len, encoded)) > 2 * PIECE_BYTES:
        return (part[start : start + PIECE_BYTES] for part in encoded for start in range(0, len(part), PIECE_BYTES))
    return iter(encoded if len(encoded) <= 1 else (b"".join(encoded),))


@dataclass(slots=True)
class EventFrame:
    event: Event
    id: EventId
    _encoded: dict[Format, Encoded] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def payload(self) -> bytes:
        return self.event.payload

    @property
    def directory(self) -> str | None:
        return self.event.directory

    @property
    def size(self) -> int:
        return len(self.event.payload)

    @property
    def steers(self) -> bool:
        return self.event.steers

    @property
    def is_second_only(self) -> bool:
        return self.event.is_second_only

    def encoded(self, form: Format) -> Encoded:
        made = self._encoded.get(form)
        if made is None:
            event = self.event
            numbered = event.seq is not None
            made = _encode(form, self.id, event.payload, event.directory, has_sequence=numbered)
            if form.second:
                for event_id, payload in second_api.also(event.payload, event.seq):
                    made = (*made, *_encode(form, event_id, payload, event.directory))
            self._encoded[form] = made
        return made


@dataclass(slots=True)
class PartFrame:
    """`part` is the whole part's JSON, None in a frame that carries the gained text alone."""

    delta: PartDelta
    id: EventId
    text: str
    part: bytes | None = None
    _encoded: dict[Format, Encoded] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def directory(self) -> str:
        return self.delta.directory

    @property
    def size(self) -> int:
        return len(self.text) + (len(self.part) if self.part else 0)

    @property
    def payload(self) -> bytes:
        if self.part is None:
            return EventMessagePartDelta.around(self._delta()).payload
        return EventMessagePartUpdated.around_part(self.delta.session_id, self.part, self.text).payload

    def _delta(self) -> bytes:
        delta = self.delta
        return orjson.dumps(
            {
                "sessionID": delta.session_id,
                "messageID": delta.message_id,
                "partID": delta.part_id,
                "partType": delta.part_type,
                "field": delta.field,
                "delta": self.text,
            }
        )

    def encoded(self, form: Format) -> Encoded:
        made = self._encoded.get(form)
        if made is None:
            made = self._encoded[form] = _encode(form, self.id, self.payload, self.delta.directory)
        return made

    def merged_with(self, newer: "PartFrame") -> "PartFrame":
        return PartFrame(newer.delta, newer.id, self.text + newer.text, newer.part)


Frame = EventFrame | PartFrame
