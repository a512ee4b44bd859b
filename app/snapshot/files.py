"""Writes and removes files below a directory that is held open, without following symbolic links out of it."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.util.project_files import HeldDirectory

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_file(root: HeldDirectory, path: str, content: bytes, *, executable: bool) -> None:
    """Atomically replaces a file, link or empty directory by a regular file. Raises OSError.

    Keeps the read and write permissions of an existing file; `executable` sets the executable bits.
    """

    def create(name: str, folder: int, replaced: os.stat_result | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o777 if executable else 0o666, dir_fd=folder), "wb") as file:
            file.write(content)
            if replaced is not None and stat.S_ISREG(replaced.st_mode):
                _take_over(file.fileno(), replaced, executable)

    _replace(root, path, create)


def write_link(root: HeldDirectory, path: str, target: bytes) -> None:
    """Atomically replaces a file, link or empty directory by a symbolic link. Raises OSError."""
    _replace(root, path, lambda name, folder, _: os.symlink(target, os.fsencode(name), dir_fd=folder))


def remove(root: HeldDirectory, path: str, keep: Path) -> None:
    """Removes a file or link and then empty parent directories, as git does, but not `keep` and its parents."""
    with suppress(FileNotFoundError), _parent(root, path) as (folder, name):
        os.unlink(name, dir_fd=folder)
    for emptied in Path(path).parents[:-1]:
        if keep.is_relative_to(root.real / emptied) or not _rmdir(root, emptied.as_posix()):
            return


def _rmdir(root: HeldDirectory, path: str) -> bool:
    try:
        with _parent(root, path) as (folder, name):
            os.rmdir(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _replace(root: HeldDirectory, path: str, create: Callable[[str, int, os.stat_result | None], None]) -> None:
    with _parent(root, path, create=True) as (folder, name):
        temporary = _temporary(name)
        _unlink(temporary, folder)
        replaced = _lstat(name, folder)
        if replaced is not None and stat.S_ISDIR(replaced.st_mode):
            os.rmdir(name, dir_fd=folder)
        try:
            create(temporary, folder, replaced)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _unlink(temporary, folder)
            raise


def remove_leftover(root: HeldDirectory, path: str) -> None:
    """What a server that was killed while it replaced the file may have left beside it."""
    with suppress(OSError), _parent(root, path) as (folder, name):
        os.unlink(_temporary(name), dir_fd=folder)


def _temporary(name: str) -> str:
    """The same each time, so that whoever comes later finds it."""
    return f".opensession-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _take_over(descriptor: int, replaced: os.stat_result, executable: bool) -> None:
    mode = stat.S_IMODE(replaced.st_mode)
    readers_may_execute = (mode & 0o444) >> 2
    created = os.fstat(descriptor)
    if (created.st_uid, created.st_gid) != (replaced.st_uid, replaced.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    os.fchmod(descriptor, mode | readers_may_execute if executable else mode & ~0o111)


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


@contextmanager
def _parent(root: HeldDirectory, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Yields the open parent directory of `path` and the name in it. Follows no links below `root`."""
    *folders, name = path.split("/")
    descriptor = root.opened()
    try:
        for folder in folders:
            inner = _descend(descriptor, folder, create)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _descend(descriptor: int, folder: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=descriptor)
    return os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
