"""A directory that is held open: a path may lead elsewhere later, as when a command puts a link in its place."""

import errno
import os
from pathlib import Path

from app.util.project_files import path_of

Identity = tuple[int, int]
"""Device and inode. They name the directory for as long as something holds it open."""

_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class DirectoryReplaced(OSError):
    """Something else stands where a directory in use was."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if it is no directory."""
        super().__init__(errno.ESTALE, "another directory stands there than when the work began", str(path))


class HeldDirectory:
    """`path` as it was named; `real` is where it was when it was opened, without symlinks."""

    __slots__ = ("__weakref__", "_descriptor", "identity", "path", "real")

    def __init__(self, path: Path) -> None:
        """Raises OSError if it is no directory."""
        self._descriptor = -1
        self._descriptor = os.open(path, _FLAGS)
        self.path = path
        self.real = Path(path_of(self._descriptor))
        self.identity = identity_of(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldDirectory) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Path, Path, Identity]:
        return self.path, self.real, self.identity

    def __repr__(self) -> str:
        return f"HeldDirectory({str(self.path)!r})"

    def is_in_place(self) -> bool:
        """Whether both its names still lead to it."""
        try:
            return identity_of(self.path) == identity_of(self.real) == self.identity
        except OSError:
            return False

    def opened(self) -> int:
        """A descriptor of its own for the caller, which closes it. Raises DirectoryReplaced."""
        if not self.is_in_place():
            raise DirectoryReplaced(self.path)
        return os.dup(self._descriptor)


def identity_of(file: int | Path) -> Identity:
    """Links followed. Raises OSError."""
    found = os.stat(file)  # noqa: PTH116  a descriptor, too
    return found.st_dev, found.st_ino


def located(path: Path) -> tuple[Path, Identity]:
    """Where a file or directory is, without symlinks, and what it is, of one moment. Raises OSError."""
    descriptor = os.open(path, os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK))
    try:
        return Path(path_of(descriptor)), identity_of(descriptor)
    finally:
        os.close(descriptor)
