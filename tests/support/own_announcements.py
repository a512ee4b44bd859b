"""Directory states of a server that works alone, and whose announcements a test takes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from app.record.directory_state import DirectoryStates
from app.record.engine import Database
from app.record.writer import Writer
from app.schema.event import AnnouncedEvent


class OwnAnnouncements(DirectoryStates):
    def __init__(self, heard: Callable[[str, AnnouncedEvent], object]) -> None:
        super().__init__(cast(Database, None), cast(Writer, None), None)
        self._heard = heard

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        self._heard(directory, event)
        announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        announced.set_result(None)
        return announced


def announcing_to(heard: Callable[[str, AnnouncedEvent], object] = lambda directory, event: None) -> DirectoryStates:
    return OwnAnnouncements(heard)
