"""Files beneath a directory, opened without following a symbolic link on the way, even if one is put there meanwhile: each
directory is opened from the one above, as openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS does in one call on newer kernels.
`root` is a directory that is held open, or one that nobody replaces.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from app.util.project_files import HeldDirectory

Root = HeldDirectory | Path
ROOT = Path("/")
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


@contextmanager
def folder_of(path: Path, root: Root = ROOT, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory that holds `path`, which lies beneath `root` and has no links and no `..` from there on.
    `create` makes missing directories. Raises OSError: ELOOP for a link, DirectoryReplaced for the root."""
    descriptor = root.opened() if isinstance(root, HeldDirectory) else os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for name in path.relative_to(_path(root)).parts[:-1]:
            below = _enter(descriptor, name, create)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path, root: Root = ROOT) -> int:
    """Opens a file for reading, or a directory to list it. Non-blocking: opening a FIFO otherwise waits for a writer."""
    with folder_of(path, root) as folder:
        return os.open(_name(path, root), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def opened(path: Path, root: Root = ROOT) -> BufferedReader:
    """Opens a file for reading, as `open_file` does. Raises IsADirectoryError for a directory."""
    # By an opener: unlike `os.fdopen` it closes the descriptor of a directory.
    return open(path, "rb", opener=lambda _path, _flags: open_file(path, root))


def status_of(path: Path, root: Root = ROOT) -> os.stat_result | None:
    """None if the file does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError), folder_of(path, root) as folder:
        return os.stat(_name(path, root), dir_fd=folder, follow_symlinks=False)
    return None


def names_in(path: Path, root: Root = ROOT) -> list[str]:
    """The names of a directory's entries. Raises OSError."""
    descriptor = open_file(path, root)
    try:
        return os.listdir(descriptor)  # noqa: PTH208  of a descriptor
    finally:
        os.close(descriptor)


def remove_folder(path: Path, root: Root = ROOT) -> None:
    """Raises OSError if it is not empty."""
    with folder_of(path, root) as folder:
        os.rmdir(path.name, dir_fd=folder)


def copy_owner(descriptor: int, status: os.stat_result) -> None:
    """Gives an open file the owner and group of another, as far as this server's user may."""
    with suppress(PermissionError):  # to a group that this user is not in
        os.fchown(descriptor, status.st_uid if os.geteuid() == 0 else -1, status.st_gid)


def _path(root: Root) -> Path:
    return root.path if isinstance(root, HeldDirectory) else root


def _name(path: Path, root: Root) -> str:
    return "." if path == _path(root) else path.name


def _enter(folder: int, name: str, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _DIRECTORY, dir_fd=folder)
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):  # it may have become a directory by now
            raise OSError(errno.ELOOP, f"a symbolic link was put into the way: {name}") from None
        raise


@contextmanager
def replacing(folder: int, name: str, temporary: str) -> Iterator[None]:
    """The block writes the file `temporary` in an open folder; the file then replaces `name`, atomically. If the block fails
    `temporary` is removed."""
    try:
        yield
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
