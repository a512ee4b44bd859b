"""An exclusive lock for a snapshot repository, within this server and between servers that share a data directory.

Servers of one PostgreSQL lock by the database: the lock of a file on a network volume would outlive a dead machine. Git processes
of a killed server may go on for a moment then. What they can do to the index is found and mended (`Snapshots._capture`).
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from app.schema.errors import ServiceError

if TYPE_CHECKING:  # commands import this before they know whether a database is needed
    from app.record.postgres import Locks

_POLL_SECONDS = 0.01
_in_process: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
TIMEOUT_SECONDS = 120.0
COLLECTION_TIMEOUT_SECONDS = 900.0
"""A large repository is collected, or copied to a backup, for minutes."""


class SnapshotFailed(ServiceError):
    """A snapshot could not be taken or read. A step then has no snapshot; a revert fails with this message."""

    status = 500
    name = "SnapshotError"

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        """`is_final`: another try now would fail, too."""
        super().__init__(f"The files' snapshot failed: {reason}")
        self.reason = reason
        self.is_final = is_final


class RepositoryLock:
    def __init__(self, file: Path, name: str, locks: "Locks | None", timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """`locks`: the database's. If servers share the database, the lock is its lock of this name."""
        self._file = file
        self._name = name
        self._shared = locks if locks is not None and locks.is_shared else None
        self._timeout_seconds = timeout_seconds
        self._local = _in_process.setdefault(file, asyncio.Lock())

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int | None]:
        """Yields the locked file's descriptor; None if the database's lock is held. A git process that inherits it keeps the
        lock if this server is killed, so the holder of the lock knows that no other git process uses the index. Raises
        SnapshotFailed."""
        if self._shared is not None:
            async with AsyncExitStack() as stack:
                await self._take_named(self._shared, stack)
                yield None
            return
        async with self._local:
            descriptor = self._open()
            try:
                await self._wait_for(descriptor)
                yield descriptor
            finally:
                os.close(descriptor)

    async def _take_named(self, locks: "Locks", stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await stack.enter_async_context(locks.lock(self._name))
        except TimeoutError:
            raise SnapshotFailed(f"another server has held {self._name} for {self._timeout_seconds:g} s") from None

    def _open(self) -> int:
        try:
            if not self._file.parent.exists():
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SnapshotFailed(f"{self._file.parent} cannot be used: {error.strerror}") from error

    async def _wait_for(self, descriptor: int) -> None:
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() > deadline:
                raise SnapshotFailed(f"another process has held {self._file} for {self._timeout_seconds:g} s")
            await asyncio.sleep(_POLL_SECONDS)


def repository_lock(git_dir: Path, locks: "Locks | None") -> RepositoryLock:
    return RepositoryLock(git_dir / "opensession.lock", f"snapshots {git_dir}", locks)


def collection_lock(git_dir: Path, locks: "Locks") -> RepositoryLock:
    """Held while objects are packed or deleted, and by those who need them to stay, even in another process. Git refuses to
    collect while another server does."""
    return RepositoryLock(git_dir / "opensession-collect.lock", f"collect {git_dir}", locks, COLLECTION_TIMEOUT_SECONDS)
