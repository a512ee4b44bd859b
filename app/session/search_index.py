"""Keeps the index of searches behind the texts that commits store: first the texts of parts from before there were any, from the
newest on, then the trigrams of all. In short transactions, each of which leaves a state to go on from."""

import asyncio
import logging
import time
from collections.abc import Callable

from app.session.searched_text import created_time, text_row
from app.storage import part_texts
from app.storage.engine import Connection, Database
from app.storage.statements import Statements
from app.storage.text_index import LACKS_FTS5, lacks_fts5

log = logging.getLogger(__name__)

OLD_PARTS = 200
"""Parts that are read at once."""
TEXTS, CHARACTERS = 25, 100_000
"""How much is indexed in one commit, for which the others wait."""
PAUSE_SECONDS = 0.02
PROGRESS_SECONDS = 10.0


class SearchIndex:
    def __init__(self, database: Database, sql: Statements) -> None:
        self._database = database
        self._sql = sql

    async def catch_up(self, tell: Callable[[str], None] = log.info) -> None:
        """Returns when all is indexed. `tell` hears of the progress of what takes long."""
        if left := await self._database.read(part_texts.unsearched_parts):
            await self._fill(left, tell)
        if await self._database.read(lacks_fts5):
            log.error("%s", LACKS_FTS5)
            return
        while True:
            if not await self._database.write(lambda connection: part_texts.index_some(connection, TEXTS, CHARACTERS)):
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _fill(self, left: int, tell: Callable[[str], None]) -> None:
        told = time.monotonic()
        while left:
            left = await self._database.write(self._fill_some)
            if time.monotonic() > told + PROGRESS_SECONDS:
                tell(f"searches in messages: parts up to number {left} are still to be read")
                told = time.monotonic()
            await asyncio.sleep(PAUSE_SECONDS)
        tell("searches in messages find all parts now")

    def _fill_some(self, connection: Connection) -> int:
        """Reads again how far it is: another server may do the same."""
        parts = part_texts.old_parts(connection, part_texts.unsearched_parts(connection), OLD_PARTS)
        texts = [text_row(part._asdict(), created_time(part.message or "")) for part in parts]
        if found := [row for row in texts if row is not None]:
            connection.execute(self._sql.put_part_text.statement, found)
        left = parts[-1].seq - 1 if len(parts) == OLD_PARTS else 0
        part_texts.set_unsearched_parts(connection, left)
        return left
