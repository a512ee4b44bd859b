"""Events and deltas that are announced, their audience, and their ids."""

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import NamedTuple, Protocol

from app.schema.event import AnnouncedEvent, RenderedEvent
from app.util import clock

# The ids of events, `evt_` and 26 hex digits: an event's position in the journal, after which a client can resume. The first 13
# digits are the event's sequence, or the newest one that was published before an event without (a delta, a heartbeat). The last
# 13 distinguish such events; they are 0 for an event of the journal. Ids ascend in the order in which a server sends events, and
# an event of the journal has the same id on every server. Users who do not receive all sessions' events are given sealed ids.

PREFIX = "evt_"
NEVER_GIVEN = -1
"""What an unknown id reads as: a cursor that is too old."""

_WRITTEN = re.compile(rf"{PREFIX}([0-9a-f]{{13}})([0-9a-f]{{13}})")
_MAX_SEQ = 16**13 - 1


UNKNOWN_MARK = 1 << 31
"""From here on marks tell nothing but an order. Smaller ones are of events that are made of the journal's event."""


@cache
def _marks() -> Iterator[int]:
    """Counts from the time in microseconds, so that the numbers of a server that is started again are larger."""
    return itertools.count(clock.now_ms() * 1000)


class CursorSeal(Protocol):
    """Writes the ids of events so that users learn nothing from them."""

    def seal(self, seq: int, mark: int = UNKNOWN_MARK) -> bytes:
        """From UNKNOWN_MARK on marks are not told, and give another id each time."""


class EventId(NamedTuple):
    seq: int
    mark: int = 0

    @classmethod
    def behind(cls, seq: int) -> "EventId":
        """A new id, for an event that the journal does not have."""
        return cls(min(max(seq, 0), _MAX_SEQ), next(_marks()))

    def wire(self, seal: CursorSeal | None) -> bytes:
        if seal is not None:
            return b"evt_%b" % seal.seal(*self)
        return b"evt_%013x%013x" % self


def read_cursor(cursor: str) -> EventId:
    """An event's id, or the number in an `id:` line, which stands for all that is made of the event too."""
    if written := _WRITTEN.fullmatch(cursor):
        return EventId(int(written[1], 16), int(written[2], 16))
    return EventId(read_number(cursor), UNKNOWN_MARK)


def read_number(text: str) -> int:
    """NEVER_GIVEN if the text is no number of 64 bits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else NEVER_GIVEN


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a session (None: to none), in a directory (None: to the whole server). `payload` is the JSON
    `{"type": …, "properties": …}`, which clients are sent with its `id`.

    A journaled event has its journal sequence when it is published. `owner`: the user of its session (empty: nobody's), None for
    an event of no session; the writer finds it out.
    """

    type: str
    payload: bytes
    _: KW_ONLY
    session_id: str | None = None
    directory: str | None = None
    journaled: bool = True
    seq: int | None = None
    owner: str | None = None

    @classmethod
    def of(
        cls,
        event: AnnouncedEvent | RenderedEvent,
        directory: str | None = None,
        session_id: str | None = None,
        *,
        journaled: bool = True,
    ) -> "Event":
        payload = event.wire_json()
        return cls(event.type, payload, session_id=session_id, directory=directory, journaled=journaled)

    @property
    def is_second_only(self) -> bool:
        """Whether only streams of the second API have the event: clients of the first do not know its type."""
        return self.type.startswith("session.next.")

    @property
    def steers(self) -> bool:
        """Whether the event steers terminal clients: only its owner's."""
        return self.type.startswith("tui.")

    @property
    def properties(self) -> bytes:
        """The properties' JSON, which the payload has after the type."""
        return self.payload[len(b'{"type":"","properties":') + len(self.type) : -1]

    def stored(self, owner: str | None, seq: int | None) -> "Event":
        return replace(self, owner=owner, seq=seq)

    def id(self, newest: int = 0) -> EventId:
        """`newest`: the sequence after which an event without a sequence is sent."""
        if self.seq is not None:
            return EventId(self.seq) if self.journaled else EventId.behind(self.seq)
        return EventId.behind(newest)


@dataclass(frozen=True, slots=True)
class Audience:
    """A user who receives only the events of `owner`'s sessions, and those of no session in directories that `may_enter` allows.
    A gap between ids, or their growth, would tell about the others: `cursors` hides it."""

    owner: str
    may_enter: Callable[[str], bool]
    cursors: CursorSeal

    def owns(self, owner: str) -> bool:
        return owner != "" and owner == self.owner

    def receives(self, event: Event) -> bool:
        """Events of the whole server, or about a sign-in to an MCP server, are for admins."""
        if event.owner is not None:
            return self.owns(event.owner)
        return event.directory is not None and event.type != _SIGN_IN and self.may_enter(event.directory)


_SIGN_IN = "mcp.browser.open.failed"


ENDED = sys.maxsize
"""Instead of a known length of text: the part has ended, and its deltas that are on their way are not sent."""


@dataclass(frozen=True, slots=True)
class StreamingParts:
    """Parts as they are at one moment: `events` show them, with so many characters of text as `known` says of each."""

    known: dict[str, int]
    events: list[Event]


class PartDelta(NamedTuple):
    """New text of a streaming part (empty: the part changed in another way, as a tool's progress does).

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
    generation: int = 0
    """Of the lease of the part's turn."""
    owner: str = ""
    """The user to whom the session belongs."""
