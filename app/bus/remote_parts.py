"""The parts that stream on other servers, put together here from what they receive."""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson

from app.bus.base import Event, PartDelta, StreamingParts
from app.schema.event import EventMessagePartUpdated

MOST_PARTS = 10_000


class PartGrowth(NamedTuple):
    """New text of a part, as one server sends it to the others. `whole`: the part's JSON, of a part that others may not know yet,
    or one that changed in another way than by text. `after`: the newest sequence that the server had announced by then."""

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
    after: int = 0


@dataclass(slots=True)
class RemotePart:
    directory: str
    session_id: str
    message_id: str
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
        self._ends: OrderedDict[str, int] = OrderedDict()
        """By id, of parts, messages and sessions: the sequence of the newest event that shows all of it, or its end."""

    def apply(self, growth: PartGrowth) -> PartDelta | Event | None:
        """What is to be published of it here: a delta; the whole part where text before it was missed; None where it comes from
        a server that has lost the session, comes too late, or something is missing still."""
        if growth.generation < self._generations.get(growth.session_id, 0) or self._is_late(growth):
            return None
        _remember(self._generations, growth.session_id, growth.generation)
        if not growth.text:
            return self._delta(growth, partial(str.encode, growth.whole or "{}")) if growth.whole else None
        part = self._parts.get(growth.part_id)
        if part is not None and part.size >= growth.size:
            return None  # Redis may be given the same twice
        if part is not None and part.size + len(growth.text) == growth.size:
            part.append(growth.text)
            return self._delta(growth, partial(part.first_characters, growth.size))
        return self._add(growth) if growth.whole else None

    def _is_late(self, growth: PartGrowth) -> bool:
        """It was on its way while Redis did not answer, and clients know better from the journal."""
        return any(growth.after < self._ends.get(key, 0) for key in (growth.part_id, growth.message_id, growth.session_id))

    def _add(self, growth: PartGrowth) -> PartDelta | Event:
        body = orjson.loads(growth.whole or "{}")
        part = RemotePart(growth.directory, growth.session_id, growth.message_id, body, len(body["text"]), growth.owner)
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

    def ended(self, id: str, seq: int) -> None:
        """The last event of a part has come, or a part, message or session was removed."""
        _remember(self._ends, id, seq)
        gone = [key for key, part in self._parts.items() if id in (key, part.message_id, part.session_id)]
        for key in gone:
            del self._parts[key]

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
