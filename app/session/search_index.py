"""Keeps searches complete and fast beside the commits, which store the text of their parts and index it themselves: goes through
parts from before there were texts, the newest first, and tidies PostgreSQL's index."""

import asyncio
import logging
import time
from collections.abc import Callable

from app.session.searched_text import created_time, text_row
from app.storage import part_texts
from app.storage.engine import Connection, Database
from app.storage.statements import statements
from app.storage.text_index import tidy_trigrams

log = logging.getLogger(__name__)

OLD_PARTS = 50
"""Parts that are read at once, and of which the texts are indexed in one commit, for which the others wait."""
PAUSE_SECONDS = 0.02
PROGRESS_SECONDS = 10.0


class SearchIndex:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def catch_up(self, tell: Callable[[str], None] = log.info) -> None:
        """Returns when all is indexed. `tell` hears of the progress of what takes long."""
        if left := await self._database.read(part_texts.unsearched_parts):
            await self._fill(left, tell)
        if self._database.dialect == "postgresql":
            async with self._database.locks.lock("search index"):
                await tidy_trigrams(self._database.engine)

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
            connection.execute(statements(connection.dialect.name).put_part_text.statement, found)
        left = parts[-1].seq - 1 if len(parts) == OLD_PARTS else 0
        part_texts.set_unsearched_parts(connection, left)
        return left
