"""What of the working tree a snapshot holds.

Git names the files that differ from the index; here each is looked at, for a snapshot holds regular files up to 2 MiB and
symbolic links. For any other file it holds a placeholder: a symbolic link whose target no real link can have, since it begins
with NUL. So a change of such a file still shows as a change, and a restore can say why it leaves the file alone.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MAX_FILE_BYTES = 2 * 1024 * 1024
TOO_LARGE = "larger than 2 MiB"
UNREADABLE = "not readable"
SPECIAL = "not a regular file"


@dataclass(frozen=True)
class Absent:
    """Nothing, or something behind a symbolic link, which is not this path's."""


@dataclass(frozen=True)
class Directory:
    pass


@dataclass(frozen=True)
class Held:
    """A file or link that a snapshot holds with its content."""


@dataclass(frozen=True)
class NotHeld:
    """`reason` goes on from "it is"."""

    reason: str
    size: int
    mtime_ns: int

    def placeholder(self) -> bytes:
        return f"\0{self.reason}\0{self.size} {self.mtime_ns}".encode()


OnDisk = Absent | Directory | Held | NotHeld


def placeholder_reason(link_target: bytes) -> str | None:
    """Why the file is not held; None for the target of a real link."""
    if not link_target.startswith(b"\0"):
        return None
    return link_target.split(b"\0")[1].decode()


@dataclass
class Staging:
    """How the index is to be brought up to date, in paths relative to the worktree."""

    update: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    placeholders: dict[str, bytes] = field(default_factory=dict)


class Worktree:
    """Looks at paths of one working tree, never through a symbolic link. It remembers directories: use one for a moment only."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._is_real = cache(self._is_real_directory)

    def stage(self, listed: Iterable[str]) -> Staging:
        staging = Staging()
        # Git lists a repository inside this one by its directory; its files are its own.
        for path in dict.fromkeys(path for path in listed if not path.endswith("/")):
            match self.look(path):
                case NotHeld() as file:
                    staging.placeholders[path] = file.placeholder()
                case Directory():
                    staging.remove.append(path)
                case Absent() if not self._is_reachable(path):
                    staging.remove.append(path)
                case Absent() | Held():
                    staging.update.append(path)
        return staging

    def look(self, path: str) -> OnDisk:
        try:
            if not self._is_reachable(path):
                return Absent()
            return self._classify(self._absolute(path))
        except (FileNotFoundError, NotADirectoryError):
            return Absent()
        except PermissionError:
            return NotHeld(UNREADABLE, 0, 0)

    def _classify(self, path: str) -> OnDisk:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return Held()
        if stat.S_ISDIR(found.st_mode):
            return Directory()
        if not stat.S_ISREG(found.st_mode):
            return NotHeld(SPECIAL, 0, found.st_mtime_ns)
        if found.st_size > MAX_FILE_BYTES:
            return NotHeld(TOO_LARGE, found.st_size, found.st_mtime_ns)
        if not os.access(path, os.R_OK):
            return NotHeld(UNREADABLE, found.st_size, found.st_mtime_ns)
        return Held()

    def _is_reachable(self, path: str) -> bool:
        folder, _, _ = path.rpartition("/")
        return not folder or self._is_real(folder)

    def _is_real_directory(self, folder: str) -> bool:
        return self._is_reachable(folder) and not Path(self._absolute(folder)).is_symlink()

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}"
