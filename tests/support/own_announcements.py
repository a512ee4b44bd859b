"""Directory states of a server that works alone, and whose announcements a test takes."""

import asyncio
from collections.abc import Awaitable, Callable

from app.schema.event import AnnouncedEvent
from app.storage.directory_state import LocalDirectoryStates


def announcing_to(heard: Callable[[str, AnnouncedEvent], object] = lambda directory, event: None) -> LocalDirectoryStates:
    def announce(directory: str, event: AnnouncedEvent) -> Awaitable[None]:
        heard(directory, event)
        announced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        announced.set_result(None)
        return announced

    return LocalDirectoryStates(announce)
