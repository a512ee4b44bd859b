"""Locks that admit one writer per file, within this server."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class _LockEntry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class FileLocks:
    """Locks by real path. An entry exists while a task holds the lock or waits for it."""

    def __init__(self) -> None:
        self._entries: dict[str, _LockEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def hold(self, path: Path) -> AsyncIterator[None]:
        key = _key(path)
        entry = self._entries.setdefault(key, _LockEntry())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if entry.users == 0:
                del self._entries[key]

    @asynccontextmanager
    async def hold_all(self, paths: Iterable[Path]) -> AsyncIterator[None]:
        """Locks all of the files, in a fixed order to avoid deadlocks."""
        async with AsyncExitStack() as stack:
            for path in sorted(paths, key=_key):
                await stack.enter_async_context(self.hold(path))
            yield


def _key(path: Path) -> str:
    return os.path.realpath(path)
