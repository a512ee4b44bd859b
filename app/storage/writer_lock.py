"""A lock between servers that share an SQLite file, needed for SQLite before 3.51.3.

These versions can damage a database in WAL mode if two connections write or checkpoint at the same time (the "WAL-reset bug").
Within a server, one thread does both. Between servers that share a data directory, this lock makes a transaction and its
checkpoint exclusive.
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

FIXED_IN = (3, 51, 3)
_POLL_SECONDS = 0.002


class WriterLockTimeout(SQLAlchemyError):
    """Another server held the lock for longer than the timeout, or the file system has no locks."""


def has_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    return version < FIXED_IN


class WriterLock:
    """Create one per server: two objects exclude each other."""

    def __init__(self, database: Path, timeout_seconds: float) -> None:
        self._path = database.with_name(f"{database.name}-writer")
        self._timeout_seconds = timeout_seconds
        self._descriptor: int | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises WriterLockTimeout."""
        try:
            descriptor = self._take()
        except OSError as error:
            raise WriterLockTimeout(
                f"{self._path} cannot be locked: {error.strerror}. The data directory needs a local disk."
            ) from error
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + self._timeout_seconds
        while not _try_lock(self._descriptor):
            if time.monotonic() > deadline:
                raise WriterLockTimeout(f"another server has been writing to the database for {self._timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)
        return self._descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
