"""Decides what a snapshot stores of the working tree.

Git lists the files that differ from the index. A snapshot stores regular files up to 2 MiB and symbolic links. For any other
file it stores a placeholder: a symbolic link with a target that no real link can have, because it begins with NUL. A change of
such a file is therefore visible, and a restore can report why it skips the file.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

MAX_FILE_BYTES = 2 * 1024 * 1024
TOO_LARGE = "larger than 2 MiB"
UNREADABLE = "not readable"
SPECIAL = "not a regular file"


@dataclass(frozen=True)
class Absent:
    """The path does not exist, or leads through a symbolic link."""


@dataclass(frozen=True)
class DirectoryOnDisk:
    pass


@dataclass(frozen=True)
class Captured:
    """A file or link whose content is stored."""


@dataclass(frozen=True)
class NotCaptured:
    """A file whose content is not stored. `reason` completes "it is …"."""

    reason: str
    size: int
    mtime_ns: int

    def placeholder(self) -> bytes:
        return f"\0{self.reason}\0{self.size} {self.mtime_ns}".encode()


OnDisk = Absent | DirectoryOnDisk | Captured | NotCaptured


def placeholder_reason(link_target: bytes) -> str | None:
    """Why the file's content is not stored; None for the target of a real link."""
    if not link_target.startswith(b"\0"):
        return None
    return link_target.split(b"\0")[1].decode()


@dataclass
class Staging:
    """The changes to the index, in paths relative to the worktree."""

    update: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    placeholders: dict[str, bytes] = field(default_factory=dict)


class Worktree:
    """Inspects paths below the directory of an open descriptor without following symbolic links. Caches directories, so use it
    only briefly."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._is_real = cache(self._is_real_directory)

    def stage(self, listed: Iterable[str]) -> Staging:
        staging = Staging()
        # Git lists a nested repository by its directory only.
        for path in dict.fromkeys(path for path in listed if not path.endswith("/")):
            match self.look(path):
                case NotCaptured() as file:
                    staging.placeholders[path] = file.placeholder()
                case DirectoryOnDisk():
                    staging.remove.append(path)
                case Absent() if not self._is_reachable(path):
                    staging.remove.append(path)
                case Absent() | Captured():
                    staging.update.append(path)
        return staging

    def look(self, path: str) -> OnDisk:
        try:
            if not self._is_reachable(path):
                return Absent()
            return self._classify(path)
        except (FileNotFoundError, NotADirectoryError):
            return Absent()
        except PermissionError:
            return NotCaptured(UNREADABLE, 0, 0)

    def _classify(self, path: str) -> OnDisk:
        found = os.lstat(path, dir_fd=self._root)
        if stat.S_ISLNK(found.st_mode):
            return Captured()
        if stat.S_ISDIR(found.st_mode):
            return DirectoryOnDisk()
        if not stat.S_ISREG(found.st_mode):
            return NotCaptured(SPECIAL, 0, found.st_mtime_ns)
        if found.st_size > MAX_FILE_BYTES:
            return NotCaptured(TOO_LARGE, found.st_size, found.st_mtime_ns)
        if not os.access(path, os.R_OK, dir_fd=self._root):
            return NotCaptured(UNREADABLE, found.st_size, found.st_mtime_ns)
        return Captured()

    def _is_reachable(self, path: str) -> bool:
        folder, _, _ = path.rpartition("/")
        return not folder or self._is_real(folder)

    def _is_real_directory(self, folder: str) -> bool:
        if not self._is_reachable(folder):
            return False
        with suppress(FileNotFoundError, NotADirectoryError):
            return not stat.S_ISLNK(os.lstat(folder, dir_fd=self._root).st_mode)
        return True
