"""What a reconnecting client has missed: the journal's events since its cursor, and the current state of streaming parts.

Steering is left out: only clients that listened then receive it.
"""

from dataclasses import dataclass
from functools import partial

from app.events.bus.base import ENDED, Audience, Event, StreamingParts
from app.events.bus.memory import MemoryBus
from app.record.engine import Connection, Database
from app.record.repositories import journal_rows
from app.schema.event import EventMessagePartUpdated
from app.schema.part import ReasoningPart, TextPart
from app.sessions.store import Store
from app.util import clock

KEEP_EVENTS = 10_000
KEEP_MS = 24 * 3600 * 1000
TRIM_STEP = 50
"""The number of events that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class ReplayPage:
    """`upto`: the newest sequence that the events cover, the journal's newest if the page is the last. `resync`: the journal
    does not reach back to the cursor, or never gave it: the client must read everything again."""

    events: list[Event]
    upto: int
    last: bool = True
    resync: bool = False


class Replay:
    def __init__(self, database: Database, store: Store, bus: MemoryBus, keep_bytes: int) -> None:
        self._database = database
        self._bus = bus
        self._store = store
        self._keep_bytes = keep_bytes

    async def head(self) -> int:
        return await self._database.read(journal_rows.newest_seq)

    async def page(self, cursor: int, directory: str | None, audience: Audience | None = None) -> ReplayPage:
        """The events after a cursor, of one directory or with None of all, up to `journal_rows.PAGE_BYTES`, but at least one."""
        owner = audience.owner if audience else None

        def read(connection: Connection) -> ReplayPage:
            page = journal_rows.journal_page(connection, cursor, directory, owner, journal_rows.PAGE_BYTES)
            if page.is_gap:
                return ReplayPage([], page.newest, resync=True)
            events = map(journal_rows.event_of, page.rows)
            received = [event for event in events if not event.steers and (audience is None or audience.receives(event))]
            return ReplayPage(received, page.upto, page.is_last)

        return await self._database.read(read)

    async def streaming(self, directory: str | None, upto: int) -> StreamingParts:
        """The parts that stream in the directory, as they are when this returns. A part that has just ended is covered: its last
        event comes later, or was replayed. `upto`: the newest event that is replayed."""
        # The journal may have the end of a part whose beginning is still to be announced, which would then come twice.
        await self._store.live.first_writes()
        found = await self._bus.streaming(directory, upto)
        for part, where, ending in self._store.live.all():
            if directory not in (None, where):
                continue
            if ending:
                found.known[part.id] = ENDED
                continue
            found.known[part.id] = len(part.text) if isinstance(part, TextPart | ReasoningPart) else 0
            shown = EventMessagePartUpdated.around_part(part.session_id, part.wire_json())
            event = Event.of(shown, where, part.session_id, journaled=False)
            found.events.append(event.stored(self._store.live.publisher.owner(part.session_id), None))
        return found

    async def trim(self) -> None:
        """Keeps the journal within its bounds, in steps between which others write: large events take long to delete."""
        limit = clock.now_ms() - KEEP_MS
        oldest, _ = await self._database.read(journal_rows.journal_span)
        end = await self._database.read(lambda c: journal_rows.newest_to_trim(c, KEEP_EVENTS, self._keep_bytes, limit))
        for upto in [*range(oldest + TRIM_STEP - 1, end, TRIM_STEP), end] if end >= oldest else []:
            await self._database.write(partial(journal_rows.trim_journal, upto=upto))
