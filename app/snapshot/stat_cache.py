"""Tells without git that a worktree is as it was at a snapshot: nothing that the snapshot depends on has another `lstat`.

Git's index does the same for files alone; this has the directories too, in which a file could be new, and the files with ignore
rules. A change gives its path a new change time (`st_ctime`), unless it comes within the same tick of the clock as the one before
it: a path that was changed shortly before the snapshot began cannot be relied on.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MOST_PATHS = 2000
"""With more, git is as fast."""
SETTLED_MS = 2000
"""The coarsest times of common file systems, those of FAT, are two seconds apart."""
SETTLED_BY_TICKS_MS = 100
"""Where times are those of the kernel's ticks, which are ten milliseconds apart at the most."""
_BY_TICKS = {"ext4", "overlay", "tmpfs", "xfs"}
_MOUNTS = Path("/proc/self/mountinfo")

PathState = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatCache:
    """States by path, None for a missing one: of a link itself in `paths`, of what it leads to in `rules`."""

    paths: Mapping[str, PathState | None]
    rules: Mapping[str, PathState | None]

    @classmethod
    def of(cls, paths: Iterable[str], rules: Iterable[str], began_ms: int) -> Self | None:
        """As they are now and were at the time `began_ms`; None if one may have changed since."""
        cache = cls({path: path_state(path) for path in paths}, rule_states(rules))
        states = [state for state in (*cache.paths.values(), *cache.rules.values()) if state]
        changed_ns = max((max(state[:2]) for state in states), default=0)
        has_ticks = {state[-1] for state in states} <= devices_with_ticks()
        settled_ms = began_ms - (SETTLED_BY_TICKS_MS if has_ticks else SETTLED_MS)
        return cache if changed_ns < settled_ms * 1_000_000 else None

    def __len__(self) -> int:
        return len(self.paths) + len(self.rules)

    def is_current(self) -> bool:
        return self.rules == rule_states(self.rules) and all(path_state(path) == state for path, state in self.paths.items())


def devices_with_ticks() -> set[int]:
    """The file systems that take the times of their files from this machine's kernel."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    mounts = (line.partition(" - ") for line in lines)
    numbers = (before.split()[2].split(":") for before, _, after in mounts if after.split()[0] in _BY_TICKS)
    return {os.makedev(int(major), int(minor)) for major, minor in numbers}


def path_state(path: str, *, follow_symlinks: bool = False) -> PathState | None:
    """Its times of change first; None for an unreachable path."""
    try:
        found = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116  a Path costs as much as the call
    except OSError:
        return None
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode, found.st_ino, found.st_dev


def rule_states(rules: Iterable[str]) -> dict[str, PathState | None]:
    return {path: path_state(path, follow_symlinks=True) for path in rules}


@dataclass(frozen=True, slots=True)
class Searched:
    """Where a snapshot looks for files, and the ignore rules that it finds there."""

    folders: list[str]
    rules: list[str]


def searched(worktree: str, covered: str, ignored: Collection[str]) -> Searched | None:
    """All directories of `covered` but the `ignored` ones, and those above it up to the worktree. None for too many, and where a
    repository is inside: git looks into its `.git`, too. Raises OSError."""
    above = _above(worktree, covered)
    found = Searched(above, [f"{folder}/.gitignore" for folder in above])
    pending = [covered]
    while pending and len(found.folders) + len(pending) <= MOST_PATHS:
        folder = pending.pop()
        with os.scandir(folder) as scanned:
            entries = {entry.name: entry for entry in scanned}
        if ".git" in entries and folder != worktree:
            return None
        if ".gitignore" in entries:
            found.rules.append(f"{folder}/.gitignore")
        found.folders.append(folder)
        inner = [entry.path for name, entry in entries.items() if name != ".git" and entry.is_dir(follow_symlinks=False)]
        pending += [path for path in inner if path not in ignored]
    return None if pending else found


def _above(worktree: str, covered: str) -> list[str]:
    above = [str(parent) for parent in Path(covered).parents]
    return above[: above.index(worktree) + 1] if worktree in above else []
