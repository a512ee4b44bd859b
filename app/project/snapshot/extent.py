"""Which directories without git have snapshots: the small ones. A checkout has rules for what belongs to it; another directory
may be a whole disk. Counting stops at the bound."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from app.project.snapshot.capture import MAX_FILE_BYTES
from app.util.project_files import FileRefused

MAX_FILES = 20_000
MAX_BYTES = 256 * 1024 * 1024
MAX_SECONDS = 5.0
MADE_BY_TOOLS = ("node_modules", ".venv", "__pycache__", ".hg", ".svn")
"""Directories that snapshots leave out unless ignore rules say otherwise."""
_RULES = (".gitignore", ".ignore", ".gitattributes", ".gitmodules")
_MANY = f"it has more than {MAX_FILES:,} files and folders that no ignore rule leaves out"
_LARGE = f"its files are larger than {MAX_BYTES // 1024**2} MiB together"
SLOW = f"its files could not be counted in {MAX_SECONDS:g} s"


def refusal(directory: Path) -> str | None:
    """Why a directory (resolved) has no snapshots, however small it is."""
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111  without one it stays as it is
    if shutil.which("git") is None:
        return "git is not installed"
    if directory == Path("/"):
        return "it is the root of the file system"
    return "it is the home directory, or holds it" if home.is_relative_to(directory) else None


def excess(sizes: Iterable[int], now: Callable[[], float] = time.monotonic) -> str | None:
    """The bound that the files of a directory exceed, by their `sizes`, of which no more are read than needed."""
    until, total = now() + MAX_SECONDS, 0
    for count, size in enumerate(sizes, 1):
        total += size if size <= MAX_FILE_BYTES else 0
        if count > MAX_FILES:
            return _MANY
        if total > MAX_BYTES:
            return _LARGE
        if now() > until:
            return SLOW
    return None


def sizes_below(directory: str, skipped: Collection[str]) -> Iterator[int]:
    """The sizes of all files, links and folders, 0 for those without content; without the `skipped` folders, those made by tools,
    and other repositories. Raises FileRefused for a file that git would wait for."""
    pending = [directory]
    while pending:
        for path, found in _entries(pending.pop()):
            yield found.st_size if stat.S_ISREG(found.st_mode) else 0
            if stat.S_ISDIR(found.st_mode) and not _is_left_out(path, skipped):
                pending.append(path)


def sizes_of(paths: Iterable[str]) -> Iterator[int]:
    """0 for a path that is gone or cannot be reached."""
    return (found.st_size if (found := _lstat(path)) else 0 for path in paths)


def has_ignore_rules(directory: str) -> bool:
    return any(os.path.lexists(f"{directory}/{name}") for name in (".gitignore", ".ignore"))


def _is_left_out(folder: str, skipped: Collection[str]) -> bool:
    return folder.rpartition("/")[2] in (".git", *MADE_BY_TOOLS) or folder in skipped or _is_repository(folder)


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as scanned:
            for entry in scanned:
                found = _lstat(entry.path)
                if found is not None:
                    _require_ends(entry, found)
                    yield entry.path, found
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return


def _require_ends(entry: "os.DirEntry[str]", found: os.stat_result) -> None:
    is_opened = entry.name in _RULES and not stat.S_ISDIR(found.st_mode)
    if is_opened and not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise FileRefused(entry.path, "is no ordinary file")


def _is_repository(folder: str) -> bool:
    """Git would open its `HEAD`. Raises FileRefused."""
    head = _lstat(f"{folder}/.git/HEAD")
    if head is not None and not (stat.S_ISREG(head.st_mode) or stat.S_ISLNK(head.st_mode)):
        raise FileRefused(f"{folder}/.git/HEAD", "is no ordinary file")
    return head is not None or os.path.lexists(f"{folder}/.git")


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
