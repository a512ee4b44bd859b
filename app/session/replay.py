"""What a client that comes back has missed: the journal's events since its cursor, and the streaming parts as they stand."""

from dataclasses import dataclass

from app.bus.base import ENDED, Event
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


@dataclass(frozen=True, slots=True)
class Streaming:
    """Parts that stream: how much of the text of each is `known` from `events`, which show them."""

    known: dict[str, int]
    events: list[Event]


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

    def streaming(self, directory: str | None) -> Streaming:
        """The parts that stream there, as they are now. What is on its way of one that has ended is covered: its last event
        comes after it, or is replayed."""
        found = Streaming({}, [])
        for part, where, ending in self._store.streaming_parts():
            if directory not in (None, where):
                continue
            found.known[part.id] = ENDED if ending else _text_length(part)
            if not ending:
                payload = frame("message.part.updated", b'{"part":%b}' % part.wire_json())
                found.events.append(Event(payload, where, part.session_id, durable=False))
        return found

    async def trim(self) -> None:
        """Keep the journal within its bounds."""
        limit = clock.now_ms() - KEEP_MS
        await self._database.write(lambda connection: queries.trim_journal(connection, KEEP_EVENTS, limit))


def _text_length(part: Part) -> int:
    return len(part.text) if isinstance(part, TextPart | ReasoningPart) else 0
