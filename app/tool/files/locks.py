"""Locks that admit one writer per file, among all servers of the database."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from app.storage.postgres import Locks, ProcessLocks


class FileLocks:
    """Locks by real path."""

    def __init__(self, locks: Locks | None = None) -> None:
        self._locks = locks or ProcessLocks()

    def hold(self, path: Path) -> AbstractAsyncContextManager[object]:
        return self._locks.lock(f"file {os.path.realpath(path)}")

    @asynccontextmanager
    async def hold_all(self, paths: Iterable[Path]) -> AsyncIterator[None]:
        """Locks all of the files, in a fixed order to avoid deadlocks."""
        async with AsyncExitStack() as stack:
            for path in sorted(paths, key=os.path.realpath):
                await stack.enter_async_context(self.hold(path))
            yield
