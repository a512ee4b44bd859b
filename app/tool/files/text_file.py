"""Text files on disk: read without losing bytes, written atomically."""

import asyncio
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from app.tool.base import ToolError
from app.tool.files.beneath import ROOT, Root, folder_of, open_file, status_of
from app.tool.files.file_times import Stamp

MAX_BYTES = 10 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")

P = ParamSpec("P")
R = TypeVar("R")


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
    """None if the file does not exist. `root` is that of app.tool.files.beneath, here and below. Raises ToolError for anything
    but a regular file of at most MAX_BYTES."""
    try:
        with os.fdopen(open_file(path, root), "rb") as file:
            status = os.fstat(file.fileno())
            _require_editable(path, status)
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
    for which the model sees a placeholder, or adds characters that UTF-8 cannot encode.
    """
    if _undecodable(text) != (_undecodable(before.text) if before else []):
        raise ToolError(
            "The change covers or adds bytes that are not valid UTF-8, which this tool would damage. "
            "Change only the lines around them, or use the bash tool."
        )
    data = text.encode("utf-8", "surrogateescape")
    return _BOM + data if before and before.has_bom and not data.startswith(_BOM) else data


def write(path: Path, data: bytes, new_mode: int | None = None, root: Root = ROOT) -> Stamp:
    """Replaces or creates a file atomically, and creates missing directories. An existing file keeps its mode; a new one gets
    `new_mode`, or the default of the umask.
    """
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


def _require_editable(path: Path, status: os.stat_result) -> None:
    _require_regular(path, status)
    if status.st_size > MAX_BYTES:
        raise ToolError(
            f"File is too large for this tool ({status.st_size} bytes, limit {MAX_BYTES}): {path}. Use the bash tool."
        )


def _replace(folder: int, name: str, data: bytes, before: os.stat_result | None, new_mode: int | None) -> Stamp:
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder), "wb"
        ) as file:
            file.write(data)
            file.flush()
            _set_rights(file.fileno(), before, new_mode)
            written = Stamp.of(os.fstat(file.fileno()))
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    return written


def _set_rights(descriptor: int, before: os.stat_result | None, new_mode: int | None) -> None:
    if before is not None and os.geteuid() == 0:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    mode = stat.S_IMODE(before.st_mode) if before is not None else new_mode
    if mode is not None:
        os.fchmod(descriptor, mode)
