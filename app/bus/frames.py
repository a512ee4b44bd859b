"""What is written to one SSE client: frames, each made once however many clients there are.

A part that streams makes two kinds of frame: OpenCode's `message.part.updated` with the whole part and the text it gained, or
`message.part.delta` with the gained text alone. Merging two frames of one part keeps the newer part and joins the texts.
"""

from dataclasses import dataclass, field
from functools import cached_property

import orjson

from app.bus.base import Event, PartDelta
from app.schema.event import frame


def _with_directory(directory: str | None, payload: bytes) -> bytes:
    if directory is None:
        return b'{"payload":%b}' % payload
    return b'{"directory":%b,"payload":%b}' % (orjson.dumps(directory), payload)


def _sse(payload: bytes, seq: int | None) -> bytes:
    return b"data: %b\n\n" % payload if seq is None else b"id: %d\ndata: %b\n\n" % (seq, payload)


@dataclass(frozen=True)
class EventFrame:
    event: Event

    @property
    def size(self) -> int:
        return len(self.event.payload)

    @cached_property
    def local(self) -> bytes:
        """As GET /event sends it."""
        return _sse(self.event.payload, self.event.seq)

    @cached_property
    def everywhere(self) -> bytes:
        """As GET /global/event sends it."""
        return _sse(_with_directory(self.event.directory, self.event.payload), self.event.seq)


@dataclass(frozen=True)
class PartFrame:
    """`part` is the whole part's JSON, None in a frame that carries the gained text alone."""

    delta: PartDelta
    text: str
    part: bytes | None = field(default=None)

    @property
    def size(self) -> int:
        return len(self.text) + (len(self.part) if self.part else 0)

    @cached_property
    def payload(self) -> bytes:
        if self.part is None:
            return frame("message.part.delta", self._gain())
        if not self.text:
            return frame("message.part.updated", b'{"part":%b}' % self.part)
        return frame("message.part.updated", b'{"part":%b,"delta":%b}' % (self.part, orjson.dumps(self.text)))

    def _gain(self) -> bytes:
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

    @cached_property
    def local(self) -> bytes:
        return _sse(self.payload, None)

    @cached_property
    def everywhere(self) -> bytes:
        return _sse(_with_directory(self.delta.directory, self.payload), None)

    def joined_with(self, newer: "PartFrame") -> "PartFrame":
        return PartFrame(newer.delta, self.text + newer.text, newer.part)


Frame = EventFrame | PartFrame
