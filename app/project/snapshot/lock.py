"""An exclusive lock for a snapshot repository, within this server and between servers that share a data directory.

Servers of one PostgreSQL lock by the database: the lock of a file on a network volume would outlive a dead machine. Git processes
of a killed server may go on for a moment then. What they can do to the index is found and mended (`Snapshots._capture`).
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.schema.errors import ServiceError
from app.util.data_files import try_lock
from app.util.tasks import ProcessLocks

if TYPE_CHECKING:  # commands import this before they know whether a database is needed
    from app.record.postgres import Locks

_POLL_SECONDS = 0.01
_in_process = ProcessLocks()
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


def repository_lock(git_dir: Path, locks: "Locks | None") -> AbstractAsyncContextManager[int | None]:
    return lock(git_dir / "opensession.lock", f"snapshots {git_dir}", locks)


def collection_lock(git_dir: Path, locks: "Locks") -> AbstractAsyncContextManager[int | None]:
    """Held while objects are packed or deleted, and by those who need them to stay, even in another process. Git refuses to
    collect while another server does."""
    return lock(git_dir / "opensession-collect.lock", f"collect {git_dir}", locks, COLLECTION_TIMEOUT_SECONDS)


def lock(
    file: Path, name: str, locks: "Locks | None", timeout_seconds: float = TIMEOUT_SECONDS
) -> AbstractAsyncContextManager[int | None]:
    """`locks`: the database's. If servers share the database, the lock is its lock of this name, and None is yielded.

    Otherwise yields the locked file's descriptor. A git process that inherits it keeps the lock if this server is killed, so the
    holder of the lock knows that no other git process uses the index. Raises SnapshotFailed.
    """
    if locks is not None and locks.is_shared:
        return _shared_lock(locks, name, timeout_seconds)
    return _file_lock(file, timeout_seconds)


@asynccontextmanager
async def _shared_lock(locks: "Locks", name: str, timeout_seconds: float) -> AsyncIterator[None]:
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(timeout_seconds):
                await held.enter_async_context(locks.lock(name))
        except TimeoutError:
            raise SnapshotFailed(f"another server has held {name} for {timeout_seconds:g} s") from None
        yield


@asynccontextmanager
async def _file_lock(file: Path, timeout_seconds: float) -> AsyncIterator[int]:
    async with _in_process.lock(str(file)):
        descriptor = _open(file)
        try:
            await _wait_for(descriptor, file, timeout_seconds)
            yield descriptor
        finally:
            os.close(descriptor)


async def _wait_for(descriptor: int, file: Path, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise SnapshotFailed(f"another process has held {file} for {timeout_seconds:g} s")
        await asyncio.sleep(_POLL_SECONDS)


def _open(file: Path) -> int:
    try:
        if not file.parent.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SnapshotFailed(f"{file.parent} cannot be used: {error.strerror}") from error
