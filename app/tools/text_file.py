"""Text files on disk: read without losing bytes, written atomically, locked among all servers of the database; and which version
of a file a session has read. `root` is that of app.util.beneath.
"""

import asyncio
import errno
import os
import re
import secrets
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from app.record.postgres import Locks
from app.tools.base import ToolError
from app.util import clock
from app.util.beneath import ROOT, Root, copy_owner, folder_of, opened, replacing, status_of

_CAPACITY = 5_000
MAX_BYTES = 10 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
P = ParamSpec("P")
R = TypeVar("R")


class Stamp(NamedTuple):
    """Distinguishes versions of a file without reading it."""

    mtime_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        return cls(status.st_mtime_ns, status.st_size)


class FileTimes:
    """Keeps the newest `capacity` (session, file) pairs; the session has to read a dropped file again. `check_disabled` is
    OPENCODE_DISABLE_FILETIME_CHECK."""

    def __init__(self, *, check_disabled: bool = False, capacity: int = _CAPACITY) -> None:
        self._check_disabled = check_disabled
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str, str], tuple[Stamp, int]] = OrderedDict()
        """With the time, in milliseconds, at which the version was seen."""

    def record(self, session_id: str, path: Path, stamp: Stamp) -> None:
        """Records that the session read or wrote this version."""
        key = _key(session_id, path)
        self._seen[key] = stamp, clock.now_ms()
        self._seen.move_to_end(key)
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def check(self, session_id: str, path: Path, now: Stamp) -> None:
        """Raises ToolError if the session has not read the file, or the file has changed since."""
        if self._check_disabled:
            return
        seen = self._seen.get(_key(session_id, path))
        if seen is None:
            raise ToolError(f"You must read file {path} before overwriting it: use the read tool first.")
        read_stamp, read_at_ms = seen
        if now != read_stamp:
            raise ToolError(
                f"File {path} has been modified since it was last read.\n"
                f"Modified: {clock.iso_utc(now.mtime_ns // 1_000_000)}\nLast read: {clock.iso_utc(read_at_ms)}\n"
                "Read it again before changing it."
            )


def _key(session_id: str, path: Path) -> tuple[str, str]:
    return session_id, os.path.realpath(path)


@dataclass(frozen=True, slots=True)
class TextFile:
    """`text` has no byte order mark; bytes that are not UTF-8 are lone surrogates in it (surrogateescape)."""

    text: str
    has_bom: bool
    mode: int
    stamp: Stamp

    def data(self) -> bytes:
        """The bytes on disk."""
        return (_BOM if self.has_bom else b"") + self.text.encode("utf-8", "surrogateescape")


def read(path: Path, root: Root = ROOT) -> TextFile | None:
    """None if the file does not exist. Raises ToolError for anything but a regular file of at most MAX_BYTES."""
    try:
        with opened(path, root) as file:
            status = os.fstat(file.fileno())
            _require_regular(path, status)
            if status.st_size > MAX_BYTES:
                size = f"{status.st_size} bytes, limit {MAX_BYTES}"
                raise ToolError(f"File is too large for this tool ({size}): {path}. Use the bash tool.")
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise ToolError(_directory(path)) from error
    except OSError as error:
        raise failure("read", path, error) from error
    text = data.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    return TextFile(text, data.startswith(_BOM), stat.S_IMODE(status.st_mode), Stamp.of(status))


def encode(text: str, before: TextFile | None) -> bytes:
    """The bytes that replace `before`, with its byte order mark. Raises ToolError if the change touches bytes that are not UTF-8,
    for which the model sees a placeholder, or adds characters that UTF-8 cannot encode."""
    if _undecodable(text) != (_undecodable(before.text) if before else []):
        raise ToolError(
            "The change covers or adds bytes that are not valid UTF-8, which this tool would damage. "
            "Change only the lines around them, or use the bash tool."
        )
    data = text.encode("utf-8", "surrogateescape")
    return _BOM + data if before and before.has_bom and not data.startswith(_BOM) else data


def write(path: Path, data: bytes, new_mode: int | None = None, root: Root = ROOT) -> Stamp:
    """Replaces or creates a file atomically, and creates missing directories. An existing file keeps its mode; a new one gets
    `new_mode`, or the default of the umask."""
    try:
        status = status_of(path, root)
        if status is not None:
            _require_regular(path, status)
        with folder_of(path, root, create=True) as folder:
            return _replace(folder, path.name, data, status, new_mode)
    except OSError as error:
        raise failure("write", path, error) from error


def delete(path: Path, root: Root = ROOT) -> None:
    try:
        with folder_of(path, root) as folder:
            os.unlink(path.name, dir_fd=folder)
    except OSError as error:
        raise failure("delete", path, error) from error


def require_unchanged(path: Path, before: TextFile | None, root: Root = ROOT) -> None:
    """Raises ToolError if the file has changed while the user was asked."""
    if stamp(path, root) != (before.stamp if before else None):
        raise ToolError(f"File {path} was changed by someone else while permission was asked. Read it again and retry.")


def require_writable(path: Path, root: Root = ROOT) -> None:
    """Raises ToolError for an existing file that is read-only for this server's user: replacing it takes no such right."""
    try:
        with folder_of(path, root) as folder:
            if not os.access(path.name, os.W_OK, dir_fd=folder, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise failure("write", path, error) from error


def stamp(path: Path, root: Root = ROOT) -> Stamp | None:
    """None if the file does not exist."""
    try:
        status = status_of(path, root)
    except OSError as error:
        raise failure("read", path, error) from error
    return Stamp.of(status) if status else None


def json_text(text: str) -> str:
    """The text for JSON: bytes that are not UTF-8 become U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def json_value(value: Any) -> Any:
    """A copy with the `json_text` of every text in it."""
    if isinstance(value, str):
        return json_text(value)
    if isinstance(value, Mapping):
        return {json_value(key): json_value(inner) for key, inner in value.items()}
    return [json_value(inner) for inner in value] if isinstance(value, list | tuple) else value


def failure(action: str, path: Path, error: OSError) -> ToolError:
    return ToolError(f"Could not {action} {path}: {error.strerror or error}")


async def finish_in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs the function in a thread. When cancelled, waits for its end first, so that no write outlives its lock."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def _undecodable(text: str) -> list[str]:
    return [] if text.isascii() else _SURROGATE.findall(text)


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(_directory(path))
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"Not a regular file (a device, pipe or socket): {path}")


def _directory(path: Path) -> str:
    return f"Path is a directory, not a file: {path}"


def _replace(folder: int, name: str, data: bytes, before: os.stat_result | None, new_mode: int | None) -> Stamp:
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with replacing(folder, name, temporary), os.fdopen(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        _set_rights(file.fileno(), before, new_mode)
        return Stamp.of(os.fstat(file.fileno()))


def _set_rights(descriptor: int, before: os.stat_result | None, new_mode: int | None) -> None:
    if before is not None:
        copy_owner(descriptor, before)
    mode = stat.S_IMODE(before.st_mode) if before is not None else new_mode
    if mode is not None:
        os.fchmod(descriptor, mode)


@asynccontextmanager
async def hold_all(locks: Locks, paths: Iterable[Path]) -> AsyncIterator[None]:
    """Locks all of the files, by their real paths, in a fixed order to avoid deadlocks."""
    async with AsyncExitStack() as stack:
        for real in sorted(set(map(os.path.realpath, paths))):
            await stack.enter_async_context(locks.lock(f"file {real}"))
        yield
