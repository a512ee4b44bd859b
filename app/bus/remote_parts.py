"""The parts that stream on other servers, put together here from what they gain."""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson

from app.bus.base import Event, PartDelta, StreamingParts
from app.schema.event import EventMessagePartUpdated

MOST_PARTS = 10_000


class Gain(NamedTuple):
    """What a part gained, as one server tells the others. `whole`: the part's JSON, of a part that others may not know yet, or
    one that changed in another way than by text."""

    directory: str
    session_id: str
    message_id: str
    part_id: str
    part_type: str
    field: str
    text: str
    size: int
    generation: int
    whole: str | None
    owner: str = ""


@dataclass(slots=True)
class RemotePart:
    directory: str
    session_id: str
    body: dict[str, Any]
    size: int
    owner: str = ""
    pieces: list[str] = field(default_factory=list)

    def append(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)

    def first_characters(self, size: int) -> bytes:
        """The JSON of the part as it was when its text was that long."""
        if self.pieces:
            self.body["text"] = "".join((self.body["text"], *self.pieces))
            self.pieces.clear()
        return orjson.dumps({**self.body, "text": self.body["text"][:size]})


class RemoteParts:
    def __init__(self) -> None:
        self._parts: OrderedDict[str, RemotePart] = OrderedDict()
        self._generations: OrderedDict[str, int] = OrderedDict()

    def gain(self, gain: Gain) -> PartDelta | Event | None:
        """What is to be published of it here: a delta; the whole part where text before it was missed; None where it comes from
        a server that has lost the session, or something is missing still."""
        if gain.generation < self._generations.get(gain.session_id, 0):
            return None
        _remember(self._generations, gain.session_id, gain.generation)
        if not gain.text:
            return self._delta(gain, partial(str.encode, gain.whole or "{}")) if gain.whole else None
        part = self._parts.get(gain.part_id)
        if part is not None and part.size + len(gain.text) == gain.size:
            part.append(gain.text)
            return self._delta(gain, partial(part.first_characters, gain.size))
        return self._introduced(gain) if gain.whole else None

    def _introduced(self, gain: Gain) -> PartDelta | Event:
        body = orjson.loads(gain.whole or "{}")
        part = RemotePart(gain.directory, gain.session_id, body, len(body["text"]), gain.owner)
        _remember(self._parts, gain.part_id, part)
        if gain.size == len(gain.text):
            return self._delta(gain, partial(part.first_characters, gain.size))
        return _shown(part)

    def _delta(self, gain: Gain, render: partial[bytes]) -> PartDelta:
        return PartDelta(
            gain.directory,
            gain.session_id,
            gain.message_id,
            gain.part_id,
            gain.text,
            gain.size,
            render,
            gain.field,
            gain.part_type,
            owner=gain.owner,
        )

    def ended(self, part_id: str) -> None:
        """Its last event has come."""
        self._parts.pop(part_id, None)

    def streaming(self, directory: str | None) -> StreamingParts:
        parts = {key: part for key, part in self._parts.items() if directory in (None, part.directory)}
        return StreamingParts({key: part.size for key, part in parts.items()}, [_shown(part) for part in parts.values()])


def _shown(part: RemotePart) -> Event:
    shown = EventMessagePartUpdated.around(b'{"part":%b}' % part.first_characters(part.size))
    return Event.of(shown, part.directory, part.session_id, journaled=False).stored(part.owner, None)


def _remember(known: OrderedDict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_PARTS:
        known.popitem(last=False)
