"""The number of an event within its session: `seq` in the second API, a cursor to resume from.

An event that the journal has is numbered by its place there, so that numbers ascend as events are committed, on whatever server.
A digest of the event is in the number too: by it the event is found among the stored messages when the journal no longer has it.
What was stored before the journal begins is counted from 1.

    53 bits, which JavaScript can count: | 31 journal | 2 position in the journal's event | 20 digest |
"""

import zlib
from typing import NamedTuple

from app.bus.event_id import EventId

_DIGEST_BITS = 20
_POSITION_BITS = 2
LARGEST = (1 << 53) - 1


class JournalPlace(NamedTuple):
    """Of a number. `journal_seq` 0: before the journal; else `digest` is the event's."""

    journal_seq: int
    digest: int


def number(journal_seq: int, position: int, digest: int) -> int:
    return (journal_seq << (_DIGEST_BITS + _POSITION_BITS)) | (position << _DIGEST_BITS) | digest


def place(seq: int) -> JournalPlace:
    journal_seq = seq >> (_DIGEST_BITS + _POSITION_BITS)
    return JournalPlace(journal_seq, seq & ((1 << _DIGEST_BITS) - 1))


def event_id(seq: int) -> EventId:
    """The id of the event with a number: with it a client resumes behind the journal's event."""
    return EventId(place(seq).journal_seq, 1 + (seq & ((1 << (_DIGEST_BITS + _POSITION_BITS)) - 1)))


def digest(record: str, event_type: str) -> int:
    return zlib.crc32(f"{event_type} {record}".encode()) & ((1 << _DIGEST_BITS) - 1)
