"""Decides what a snapshot stores of the working tree.

Git lists the files that differ from the index. A snapshot stores regular files up to 2 MiB and symbolic links. For any other
file it stores a placeholder: a symbolic link with a target that no real link can have, because it begins with NUL. A change of
such a file is therefore visible, and a restore can report why it skips the file.

The stat cache tells without git that a worktree is as it was at a snapshot: nothing that the snapshot depends on has another
`lstat`. Git's index does the same for files alone; the cache has the directories too, in which a file could be new, and the
files with ignore rules. A change gives its path a new change time (`st_ctime`), unless it comes within the same tick of the
clock as the one before it: a path that was changed shortly before the snapshot began cannot be relied on.
"""

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, Self

MAX_FILE_BYTES = 2 * 1024 * 1024
TOO_LARGE = "larger than 2 MiB"
UNREADABLE = "not readable"
SPECIAL = "not a regular file"


@dataclass(frozen=True)
class NotCaptured:
    """A file whose content is not stored. `reason` completes "it is …"."""

    reason: str
    size: int
    mtime_ns: int

    def placeholder(self) -> bytes:
        return f"\0{self.reason}\0{self.size} {self.mtime_ns}".encode()


OnDisk = Literal["absent", "directory", "captured"] | NotCaptured
"""`absent`: nothing is there, or a symbolic link leads there; `captured`: a file or link whose content is stored."""


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
    repositories: set[str] = field(default_factory=set)
    """Nested ones, as `path/`, of which a snapshot holds nothing."""


class Worktree:
    """Inspects paths below the directory of an open descriptor without following symbolic links. Caches directories, so use it
    only briefly."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._is_real = cache(self._is_real_directory)

    def stage(self, listed: Collection[str]) -> Staging:
        # Git lists a nested repository by its directory only.
        staging = Staging(repositories={path for path in listed if path.endswith("/")})
        for path in dict.fromkeys(path for path in listed if not path.endswith("/")):
            match self.look(path):
                case NotCaptured() as file:
                    staging.placeholders[path] = file.placeholder()
                case "directory":
                    staging.remove.append(path)
                case "absent" if not self._is_reachable(path):
                    staging.remove.append(path)
                case _:
                    staging.update.append(path)
        return staging

    def look(self, path: str) -> OnDisk:
        try:
            return self._classify(path) if self._is_reachable(path) else "absent"
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        except PermissionError:
            return NotCaptured(UNREADABLE, 0, 0)

    def _classify(self, path: str) -> OnDisk:
        found = os.lstat(path, dir_fd=self._root)
        if stat.S_ISLNK(found.st_mode):
            return "captured"
        if stat.S_ISDIR(found.st_mode):
            return "directory"
        if not stat.S_ISREG(found.st_mode):
            return NotCaptured(SPECIAL, 0, found.st_mtime_ns)
        if found.st_size > MAX_FILE_BYTES:
            return NotCaptured(TOO_LARGE, found.st_size, found.st_mtime_ns)
        if not os.access(path, os.R_OK, dir_fd=self._root):
            return NotCaptured(UNREADABLE, found.st_size, found.st_mtime_ns)
        return "captured"

    def _is_reachable(self, path: str) -> bool:
        """Not recursive, so that folders may have any depth."""
        return all(self._is_real(path[:at]) for at, letter in enumerate(path) if letter == "/")

    def _is_real_directory(self, folder: str) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            return not stat.S_ISLNK(os.lstat(folder, dir_fd=self._root).st_mode)
        return True


MAX_PATHS = 2000
"""With more paths git is as fast."""
SETTLED_MS = 2000
"""The coarsest times of common file systems, those of FAT, are two seconds apart."""

PathState = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatCache:
    """States by path, None for a missing one: in `paths` of a link itself, in `rules` of its target."""

    paths: Mapping[str, PathState | None]
    rules: Mapping[str, PathState | None]

    @classmethod
    def of(cls, paths: Iterable[str], rules: Iterable[str], began_ms: int) -> Self | None:
        """The present states, if they are those of the time `began_ms`; None if one may have changed since."""
        cache = cls({path: path_state(path) for path in paths}, rule_states(rules))
        states = [state for state in (*cache.paths.values(), *cache.rules.values()) if state]
        changed_ns = max((max(state[:2]) for state in states), default=0)
        return cache if changed_ns < (began_ms - SETTLED_MS) * 1_000_000 else None

    def __len__(self) -> int:
        return len(self.paths) + len(self.rules)

    def is_current(self) -> bool:
        return self.rules == rule_states(self.rules) and all(path_state(path) == state for path, state in self.paths.items())


def path_state(path: str, *, follow_symlinks: bool = False) -> PathState | None:
    """The times of change come first. None for an unreachable path."""
    try:
        found = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116  a Path costs as much as the call
    except OSError:
        return None
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode, found.st_ino, found.st_dev


def rule_states(rules: Iterable[str]) -> dict[str, PathState | None]:
    return {path: path_state(path, follow_symlinks=True) for path in rules}


def searched_places(worktree: str, covered: str, ignored: Collection[str]) -> tuple[list[str], list[str]] | None:
    """Where a snapshot looks for files: all directories of `covered` except the `ignored` ones, and those above it up to the
    worktree; and the ignore rules that it finds there. None for too many, and if a repository is inside, into whose `.git` git
    looks, too. Raises OSError."""
    above = [str(parent) for parent in Path(covered).parents]
    folders = above[: above.index(worktree) + 1] if worktree in above else []
    rules = [f"{folder}/.gitignore" for folder in folders]
    pending = [covered]
    while pending and len(folders) + len(pending) <= MAX_PATHS:
        folder = pending.pop()
        with os.scandir(folder) as scanned:
            entries = {entry.name: entry for entry in scanned}
        if ".git" in entries and folder != worktree:
            return None
        if ".gitignore" in entries:
            rules.append(f"{folder}/.gitignore")
        folders.append(folder)
        inner = [entry.path for name, entry in entries.items() if name != ".git" and entry.is_dir(follow_symlinks=False)]
        pending += [path for path in inner if path not in ignored]
    return None if pending else (folders, rules)
