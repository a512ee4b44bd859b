"""Tells which servers of a data directory are alive: each server locks a file of its own until it ends; and whether two servers
see the same one: a file in it holds a name that was drawn when it was first used.

The kernel releases the lock of a killed process. Containers that share the directory share the locks, but not process ids.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class ServerLocks:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own: tuple[Path, int] | None = None

    def hold(self, server: str) -> None:
        """Holds the lock until `release` or the end of the process. Raises OSError if the file system has no locks."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(server)
        unnamed = path.with_suffix(".new")
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(path)  # renamed after locking, so that no server sees it unlocked
        self._own = (path, descriptor)

    def is_held(self, server: str) -> bool | None:
        """None if there is no such file."""
        return _is_locked(self._path(server))

    def any_is_held(self) -> bool:
        """Whether a server of the data directory runs."""
        return any(_is_locked(path) for path in self._directory.glob("*.lock"))

    def remove_unlocked(self) -> None:
        """Removes the files of dead servers."""
        for path in self._directory.glob("*.lock"):
            if _is_locked(path) is False:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        if self._own is not None:
            path, descriptor = self._own
            path.unlink(missing_ok=True)
            os.close(descriptor)
            self._own = None

    def _path(self, server: str) -> Path:
        return self._directory / f"{server}.lock"


@contextmanager
def lock_directory(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether it is ours until the block ends, or the process does: another process may hold it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _try_lock(descriptor, wait)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, so that two servers that check at the same time do not take each other for the owner.
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(descriptor)


_VOLUME = "volume"


def volume_id(data_dir: Path) -> str:
    """The name of this directory. Of servers that draw one at the same moment all get the one that is kept. Raises OSError."""
    path = data_dir / _VOLUME
    if not path.exists():
        _draw(path)
    return path.read_text().strip()


def _draw(path: Path) -> None:
    """The file appears with its content: a link fails where another server was first."""
    drawn = path.with_name(f"{_VOLUME}.{secrets.token_hex(4)}")
    drawn.write_text(secrets.token_hex(8))
    try:
        with suppress(FileExistsError):
            os.link(drawn, path)
    finally:
        drawn.unlink()
