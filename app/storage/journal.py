"""The journal of durable events, as the event bus reads it."""

from collections.abc import Sequence
from typing import Any

from app.bus.base import Event
from app.storage.engine import Database
from app.storage.repositories import journal_rows

PAGE_BYTES = 1_000_000


class Journal:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def identity(self) -> str:
        """Of the database."""
        return await self._database.read(journal_rows.database_identity)

    async def head(self) -> int:
        """The newest sequence."""
        return (await self._database.read(journal_rows.journal_span))[1]

    async def after(self, cursor: int) -> Sequence[Event]:
        """What comes after a sequence: PAGE_BYTES, or one event if that is larger."""
        rows, _ = await self._database.read(lambda connection: journal_rows.events_after(connection, cursor, None, PAGE_BYTES))
        return list(map(event_of, rows))


def event_of(row: Any) -> Event:
    """Of the journal."""
    return Event(row.type, row.payload.encode(), session_id=row.session_id, directory=row.directory, seq=row.seq, owner=row.owner)
