"""The parts that stream on other servers, put together here from what they receive."""

from collections import OrderedDict
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

import orjson

from app.bus.base import Event, PartDelta, StreamingParts
from app.schema.event import EventMessagePartUpdated
from app.util.dataclass import dataclass

MOST_PARTS = 10_000


class PartGrowth(NamedTuple):
    """New text of a part, as one server sends it to the others. `whole`: the part's JSON, of a part that others may not know yet,
    or one that changed in another way than by text."""

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

    def apply(self, growth: PartGrowth) -> PartDelta | Event | None:
        """What is to be published of it here: a delta; the whole part where text before it was missed; None where it comes from
        a server that has lost the session, or something is missing still."""
        if growth.generation < self._generations.get(growth.session_id, 0):
            return None
        _remember(self._generations, growth.session_id, growth.generation)
        if not growth.text:
            return self._delta(growth, partial(str.encode, growth.whole or "{}")) if growth.whole else None
        part = self._parts.get(growth.part_id)
        if part is not None and part.size + len(growth.text) == growth.size:
            part.append(growth.text)
            return self._delta(growth, partial(part.first_characters, growth.size))
        return self._add(growth) if growth.whole else None

    def _add(self, growth: PartGrowth) -> PartDelta | Event:
        body = orjson.loads(growth.whole or "{}")
        part = RemotePart(growth.directory, growth.session_id, body, len(body["text"]), growth.owner)
        _remember(self._parts, growth.part_id, part)
        if growth.size == len(growth.text):
            return self._delta(growth, partial(part.first_characters, growth.size))
        return _part_event(part)

    def _delta(self, growth: PartGrowth, render: partial[bytes]) -> PartDelta:
        return PartDelta(
            growth.directory,
            growth.session_id,
            growth.message_id,
            growth.part_id,
            growth.text,
            growth.size,
            render,
            growth.field,
            growth.part_type,
            owner=growth.owner,
        )

    def ended(self, part_id: str) -> None:
        """Its last event has come."""
        self._parts.pop(part_id, None)

    def streaming(self, directory: str | None) -> StreamingParts:
        parts = {key: part for key, part in self._parts.items() if directory in (None, part.directory)}
        return StreamingParts({key: part.size for key, part in parts.items()}, [_part_event(part) for part in parts.values()])


def _part_event(part: RemotePart) -> Event:
    updated = EventMessagePartUpdated.around_part(part.session_id, part.first_characters(part.size))
    return Event.of(updated, part.directory, part.session_id, journaled=False).stored(part.owner, None)


def _remember(known: OrderedDict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_PARTS:
        known.popitem(last=False)
