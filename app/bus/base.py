"""What is announced and who listens."""

import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a directory (None: to the whole server). `payload` is the JSON `{"type": …, "properties": …}`.

    `session_id` keeps the order within a session. A durable event has got its journal sequence when it is published.
    """

    payload: bytes
    directory: str | None = None
    session_id: str | None = None
    durable: bool = True
    seq: int | None = None

    def numbered(self, seq: int) -> "Event":
        return Event(self.payload, self.directory, self.session_id, self.durable, seq)


ENDED = sys.maxsize
"""In place of a known length of text: nothing that is on its way of the part is to be sent."""


@dataclass(frozen=True, slots=True)
class StreamingParts:
    """Parts as they are at one moment: how many characters of the text of each are `known` from `events`, which show them."""

    known: dict[str, int]
    events: list[Event]


@dataclass(frozen=True, slots=True)
class PartDelta:
    """Text that a streaming part gained (empty: the part changed in another way, as a tool's progress does).

    `render` returns the part's JSON as of this delta, whenever it is called: frames that are merged in between cost nothing.
    """

    directory: str
    session_id: str
    message_id: str
    part_id: str
    text: str
    size: int
    render: Callable[[], bytes]
    field: str = "text"
    part_type: str = "text"
