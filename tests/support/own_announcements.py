"""Directory states of a server that works alone, and whose announcements a test takes."""

import asyncio
from collections.abc import Awaitable, Callable

from app.record.directory_state import DirectoryStates
from app.schema.event import AnnouncedEvent


class OwnAnnouncements(DirectoryStates):
    def __init__(self, heard: Callable[[str, AnnouncedEvent], object] = lambda directory, event: None) -> None:
        super().__init__(None, None, None)
        self._heard = heard

    def announce(self, directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        self._heard(directory, event)
        announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        announced.set_result(None)
        return announced
