"""The journal as the webhooks of a server read it: those that wait for the same events read them together."""

import asyncio
from dataclasses import dataclass

from app.storage.engine import Connection, Database
from app.storage.repositories.journal_rows import JournalPage, journal_page
from app.util.tasks import forget_failure

PAGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Read:
    """`wakes`: one that began before the last event was announced may be without it."""

    wakes: int
    cursor: int
    directory: str | None
    owner: str | None


class JournalPages:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._wakes = 0
        self._reading: dict[_Read, asyncio.Task[JournalPage]] = {}

    def note_events(self) -> None:
        """There may be new events."""
        self._wakes += 1

    async def after(self, cursor: int, directory: str | None, owner: str | None) -> JournalPage:
        """As `journal_page`."""
        wanted = _Read(self._wakes, cursor, directory, owner)
        if wanted not in self._reading:
            self._reading[wanted] = task = asyncio.create_task(self._read(wanted), name="read the journal for webhooks")
            task.add_done_callback(lambda _: self._reading.pop(wanted))
            task.add_done_callback(forget_failure)
        return await asyncio.shield(self._reading[wanted])

    async def _read(self, wanted: _Read) -> JournalPage:
        def page(connection: Connection) -> JournalPage:
            return journal_page(connection, wanted.cursor, wanted.directory, wanted.owner, PAGE_BYTES)

        return await self._database.read(page)
