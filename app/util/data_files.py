"""Files of a data directory: JSON objects that only their owner can read, and locks that show which of its servers are alive."""

import fcntl
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson

# A JSON object in a file that only its owner can read.

PrivateFileStamp = tuple[int, int, int]


class PrivateJson:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._path_text = str(path)

    def stamp(self) -> PrivateFileStamp | None:
        """Differs after the file is replaced; None without a file. Opens the file, because a network file system then shows at
        once that another machine has replaced it, but to a mere stat up to a minute later."""
        if not os.access(self._path_text, os.F_OK):  # usually there is no file, and an exception costs ten times as much
            return None
        try:
            descriptor = os.open(self._path_text, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def is_damaged(self) -> bool:
        """Whether there is a file, and its content counts as none."""
        return self.path.exists() and not isinstance(self._content(), dict)

    def read(self) -> dict[str, Any]:
        """{} for a missing or unreadable file: a damaged file must not stop the server."""
        content = self._content()
        return content if isinstance(content, dict) else {}

    @contextmanager
    def updating(self) -> Iterator[dict[str, Any]]:
        """Yields the content to be changed in place, and stores it if the block ends without an exception. Holds a lock that
        other servers and commands of the same user respect."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            content = self.read()
            before = deepcopy(content)
            yield content
            if content != before:
                self._write(content)
        finally:
            os.close(descriptor)

    def _write(self, content: dict[str, Any]) -> None:
        """Replaces the file atomically. A file that cannot be read is kept as `….json.bad`.

        mkstemp creates its file with mode 0600, so that others can never read the content.
        """
        if self.is_damaged():
            self.path.replace(self.path.with_suffix(".json.bad"))
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.stem}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _content(self) -> Any:
        try:
            return orjson.loads(self.path.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None


# Locks that show which servers of a data directory are alive: each server locks a file of its own until it ends. And a file with
# a random name, by which two servers find out whether they have the same directory. The kernel releases the lock of a killed
# process. Containers that share the directory share the locks, but not process ids.


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
        """None if the server has no file."""
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
    """Yields whether this process holds the directory, until the block or the process ends; another process may hold it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield try_lock(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, wait: bool = False) -> bool:
    """Whether this process has the lock now, until the descriptor is closed; another process may have it."""
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
        # A shared lock, so that two servers that check at the same time do not take each other for the owner.
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(descriptor)


_VOLUME = "volume"


def volume_id(data_dir: Path) -> str:
    """The directory's random name. Of servers that draw one at the same moment all get the one that is kept. Raises OSError."""
    path = data_dir / _VOLUME
    if not path.exists():
        drawn = path.with_name(f"{_VOLUME}.{secrets.token_hex(4)}")
        drawn.write_text(secrets.token_hex(8))
        try:
            with suppress(FileExistsError):  # the file appears with its content; a link fails if another server was first
                os.link(drawn, path)
        finally:
            drawn.unlink()
    return path.read_text().strip()


def remove_tree(directory: Path) -> None:
    """Removes what can be removed. By a program: `shutil.rmtree` of Python 3.11 ends at a thousand folders in one another, which
    commands can make."""
    subprocess.run(["rm", "-rf", "--", directory], stderr=subprocess.DEVNULL)
