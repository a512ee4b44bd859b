"""The ids of events, `evt_` and 26 hex digits: an event's place in the journal, behind which who remembers it can resume.

The first 13 digits are the event's sequence, or the newest one that was published before an event without (a delta, a heartbeat).
The last 13 tell those apart: they are 0 for an event of the journal. Ids ascend in the order in which a server sends events, and
an event of the journal has the same id on every server. Users who do not hear of everybody's sessions are given sealed ones.
"""

import itertools
import re
from typing import NamedTuple, Protocol

from app.util import clock

PREFIX = "evt_"
NEVER_GIVEN = -1
"""What an id reads as that this server never gave: a cursor that is too old."""

_WRITTEN = re.compile(rf"{PREFIX}([0-9a-f]{{13}})[0-9a-f]{{13}}")
_LARGEST_SEQ = 16**13 - 1
_marks = itertools.count(clock.now_ms() * 1000)
"""Microseconds, so that those of a server that is started again are larger."""


class CursorSeal(Protocol):
    """Writes the ids of events so that they tell nothing to who is sent them."""

    def seal(self, seq: int, *, stable: bool = False) -> bytes:
        """`stable`: the same each time."""


class EventId(NamedTuple):
    seq: int
    mark: int = 0

    @classmethod
    def behind(cls, seq: int) -> "EventId":
        """A new one, for an event that the journal does not have."""
        return cls(min(max(seq, 0), _LARGEST_SEQ), next(_marks))

    def wire(self, seal: CursorSeal | None) -> bytes:
        if seal is not None:
            return b"evt_%b" % seal.seal(self.seq, stable=self.mark == 0)
        return b"evt_%013x%013x" % self


def read_cursor(cursor: str) -> int:
    """The sequence of an event's id, or of the number in an `id:` line."""
    if written := _WRITTEN.fullmatch(cursor):
        return int(written[1], 16)
    return int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 19 else NEVER_GIVEN
