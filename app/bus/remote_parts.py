"""The parts that stream on other servers, put together here from what they receive."""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from app.bus.base import Event, PartDelta, StreamingParts
from app.schema.event import EventMessagePartUpdated

MOST_PARTS = 10_000


@dataclass(slots=True)
class RemotePart:
    """`size`: the characters of its text that are known."""

    first: PartDelta
    body: dict[str, Any]
    size: int
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

    def event(self) -> Event:
        part = self.first
        updated = EventMessagePartUpdated.around_part(part.session_id, self.first_characters(self.size))
        return Event.of(updated, part.directory, part.session_id, journaled=False).stored(part.owner, None)


class RemoteParts:
    def __init__(self) -> None:
        self._parts: OrderedDict[str, RemotePart] = OrderedDict()
        self._generations: OrderedDict[str, int] = OrderedDict()
        self._ends: OrderedDict[str, int] = OrderedDict()
        """By id, of parts, messages and sessions: the sequence of the newest event that shows all of it, or its end."""

    def apply(self, delta: PartDelta, whole: str | None, after: int) -> PartDelta | Event | None:
        """What is to be published here of a delta of another server: a delta; the whole part where text before it was missed;
        None where it comes from a server that has lost the session, comes too late, or something is missing still.

        `whole`: the part's JSON, of a part that others may not know yet, or that changed in another way than by text. `after`:
        the newest sequence that the server had announced by then."""
        if delta.generation < self._generations.get(delta.session_id, 0) or self._is_late(delta, after):
            return None
        _remember(self._generations, delta.session_id, delta.generation)
        if not delta.text:
            return delta if whole else None
        part = self._parts.get(delta.part_id)
        if part is not None and part.size >= delta.size:
            return None  # Redis may be given the same twice
        if part is not None and part.size + len(delta.text) == delta.size:
            part.append(delta.text)
        elif whole:
            body = orjson.loads(whole)
            part = RemotePart(delta, body, len(body["text"]))
            _remember(self._parts, delta.part_id, part)
            if delta.size != len(delta.text):
                return part.event()
        else:
            return None
        return delta._replace(render=partial(part.first_characters, delta.size))

    def _is_late(self, delta: PartDelta, after: int) -> bool:
        """It was on its way while Redis did not answer, and clients know better from the journal."""
        return any(after < self._ends.get(key, 0) for key in (delta.part_id, delta.message_id, delta.session_id))

    def ended(self, id: str, seq: int) -> None:
        """The last event of a part has come, or a part, message or session was removed."""
        _remember(self._ends, id, seq)
        gone = [key for key, part in self._parts.items() if id in (key, part.first.message_id, part.first.session_id)]
        for key in gone:
            del self._parts[key]

    def streaming(self, directory: str | None) -> StreamingParts:
        parts = {key: part for key, part in self._parts.items() if directory in (None, part.first.directory)}
        return StreamingParts({key: part.size for key, part in parts.items()}, [part.event() for part in parts.values()])


def _remember(known: OrderedDict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_PARTS:
        known.popitem(last=False)
