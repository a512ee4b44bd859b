"""An exclusive lock for a snapshot repository, within this server and between servers that share a data directory."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from app.snapshot.errors import SnapshotFailed

_POLL_SECONDS = 0.01
_in_process: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()


class RepositoryLock:
    def __init__(self, path: Path, timeout_seconds: float = 120) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._local = _in_process.setdefault(path, asyncio.Lock())

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Yields the locked file descriptor. A git process that inherits it keeps the lock if this server is killed, so the
        holder of the lock knows that no other git process uses the index.
        """
        async with self._local:
            descriptor = self._open()
            try:
                await self._wait_for(descriptor)
                yield descriptor
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        try:
            if not self._path.parent.exists():
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SnapshotFailed(f"{self._path.parent} cannot be used: {error.strerror}") from error

    async def _wait_for(self, descriptor: int) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise SnapshotFailed(f"another process has held {self._path} for {self._timeout_seconds:g} s")
            await asyncio.sleep(_POLL_SECONDS)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
