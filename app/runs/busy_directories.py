"""Which directories sessions work in: what changes a directory's files by itself is refused there meanwhile."""

import os

from app.schema.errors import ServiceError
from app.session.live import LiveSessions
from app.storage.repositories import work_rows
from app.users.users import is_within


class DirectoryBusy(ServiceError):
    status = 409
    name = "DirectoryBusyError"

    def __init__(self, directory: str) -> None:
        super().__init__(f"A session works in {directory}. Abort it or wait for its end, then try again.", directory=directory)


class BusyDirectories:
    """On all servers of the database."""

    def __init__(self, live: LiveSessions) -> None:
        self._live = live

    async def require_idle(self, tree: str) -> None:
        """Raises DirectoryBusy if a session works in a directory or below it."""
        here, real = self._live.directories(), os.path.realpath(tree)  # noqa: ASYNC240  as fast as the query
        for directory in here.union((await self._live.store.query(work_rows.held_sessions)).values()):
            if is_within(os.path.realpath(directory), [real]):  # noqa: ASYNC240
                raise DirectoryBusy(directory)
