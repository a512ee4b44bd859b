"""Opens files beneath a directory without following a symbolic link on the way, whoever puts one there meanwhile: each directory
is opened from the one above, as openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS does in one call on newer kernels.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/")
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@contextmanager
def folder_of(path: Path, root: Path = ROOT, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory that holds `path`, which lies beneath `root` and is written without links and `..` from there
    on. `create` makes the directories that are missing. Raises OSError, ELOOP for a link."""
    descriptor = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for name in path.relative_to(root).parts[:-1]:
            below = _enter(descriptor, name, create)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path, root: Path = ROOT) -> int:
    """For reading. Non-blocking: opening a FIFO otherwise waits for a writer."""
    with folder_of(path, root) as folder:
        return os.open(_name(path, root), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def status_of(path: Path, root: Path = ROOT) -> os.stat_result | None:
    """None if the file does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError), folder_of(path, root) as folder:
        return os.stat(_name(path, root), dir_fd=folder, follow_symlinks=False)
    return None


def _name(path: Path, root: Path) -> str:
    return "." if path == root else path.name


def _enter(folder: int, name: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):  # a directory only by now
            raise OSError(errno.ELOOP, f"a symbolic link was put into the way: {name}") from None
        raise
