"""What a client that comes back has missed: the journal's events since its cursor, and the streaming parts as they stand."""

import sys
from dataclasses import dataclass

from app.bus.base import Event
from app.schema.event import frame
from app.schema.part import Part, ReasoningPart, TextPart
from app.session.store import Store
from app.storage import queries
from app.storage.engine import Connection, Database
from app.util import clock

KEEP_EVENTS = 10_000
KEEP_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Missed:
    """`resync`: the journal does not reach back that far (or never gave that cursor), the client must read everything again.
    `upto` is the newest sequence that `events` covers."""

    events: list[Event]
    upto: int
    resync: bool = False


class Replay:
    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    async def head(self) -> int:
        return (await self._database.read(queries.journal_span))[1]

    async def since(self, cursor: int, directory: str | None) -> Missed:
        """Of one directory, or with None of all."""

        def read(connection: Connection) -> Missed:
            oldest, newest = queries.journal_span(connection)
            if cursor < oldest - 1 or cursor > newest:
                return Missed([], newest, resync=True)
            rows = queries.events_after(connection, cursor, directory)
            return Missed([Event(payload.encode(), where, None, True, seq) for seq, where, payload in rows], newest)

        return await self._database.read(read)

    def streaming(self, directory: str | None) -> list[tuple[str, int, Event]]:
        """(part id, how much of its text the event tells, the part as an event) for every part that streams there."""
        found = []
        for part, where in self._store.streaming_parts():
            if directory in (None, where):
                payload = frame("message.part.updated", b'{"part":%b}' % part.wire_json())
                found.append((part.id, _known_length(part), Event(payload, where, part.session_id, durable=False)))
        return found

    async def trim(self) -> None:
        """Keep the journal within its bounds."""
        limit = clock.now_ms() - KEEP_MS
        await self._database.write(lambda connection: queries.trim_journal(connection, KEEP_EVENTS, limit))


def _known_length(part: Part) -> int:
    """A text that has ended gains no more: its end may have made it shorter than what is on its way of it."""
    if not isinstance(part, TextPart | ReasoningPart):
        return 0
    return sys.maxsize if part.time and part.time.end is not None else len(part.text)
