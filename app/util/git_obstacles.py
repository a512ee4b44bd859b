"""What keeps git from ending: it opens its own files without checking their types, and waits for a FIFO for ever.

A look costs a twentieth of a millisecond. For a file that is put there between it and git's start there is git's time limit.
"""

import math
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from app.util.project_files import MAX_BYTES, MAX_ENTRIES, FileRefused, anywhere, list_folder, read_small

_ANY_SIZE = ("index", "packed-refs", "shallow", "info/grafts", "info/sparse-checkout", "logs/HEAD", "ORIG_HEAD", "FETCH_HEAD")
_SMALL = (
    *("HEAD", "config", "config.worktree", "commondir", "gitdir"),
    *("info/exclude", "info/attributes", "objects/info/alternates"),
)
REPOSITORY_FILES = (*_SMALL, *_ANY_SIZE)
"""What git opens in a git directory and in the repository's, beside the folders of objects and references."""
_OF_CHECKOUT = (".gitattributes", ".gitignore", ".gitmodules", ".mailmap")
_FILE_KEYS = {"path", "excludesfile", "attributesfile", "file"}
"""Keys of a configuration whose values git reads, such as `include.path`."""
_MAX_NAMED = 1000


def obstacle(directory: Path) -> FileRefused | None:
    """A file around a directory that git would open first, and must not."""
    for place in (str(directory), *map(str, directory.parents)):
        git_dir = _git_dir(place)
        found = next(_refused([f"{place}/HEAD"], math.inf), None) or (
            next(_of_repository(place, git_dir), None) if git_dir else None
        )
        if found is not None or git_dir is not None:
            return found
    return None


def repository_obstacle(checkout: Path, git_dir: Path) -> FileRefused | None:
    """Like `obstacle`, in a known repository."""
    return next(_of_repository(str(checkout), str(git_dir)), None)


def checkout_obstacle(checkout: Path | str) -> FileRefused | None:
    """Like `obstacle`, for git with a git directory of the server's own."""
    return next(_refused(f"{checkout}/{name}" for name in _OF_CHECKOUT), None)


def reference_obstacle(git_dir: Path) -> FileRefused | None:
    """Like `obstacle`, below `refs`, which may have thousands of files."""
    left, folders = MAX_ENTRIES, [f"{git_dir}/refs"]
    while folders and left > 0:
        folder = folders.pop()
        try:
            entries = list_folder(folder, anywhere, left)
        except OSError:
            continue
        left -= len(entries)
        folders += [f"{folder}/{entry.name}" for entry in entries if entry.is_directory]
        found = next(_refused(f"{folder}/{entry.name}" for entry in entries if not entry.is_directory), None)
        if found is not None:
            return found
    return None


def _git_dir(place: str) -> str | None:
    entry = f"{place}/.git"
    if os.path.isdir(entry):  # noqa: PTH112  as texts: this is done before each git process
        return entry if os.path.lexists(f"{entry}/HEAD") else None
    named = read_small(entry).partition("gitdir: ")[2].strip()
    return os.path.join(place, named) if named else None  # noqa: PTH118


def _of_repository(place: str, git_dir: str) -> Iterator[FileRefused]:
    common = os.path.join(git_dir, read_small(f"{git_dir}/commondir").strip()).rstrip("/")  # noqa: PTH118
    for top in dict.fromkeys((git_dir, common)):
        yield from _refused(f"{top}/{name}" for name in _SMALL)
        yield from _refused((f"{top}/{name}" for name in _ANY_SIZE), math.inf)
        yield from _refused(islice(_named_by(read_small(f"{top}/config"), top), _MAX_NAMED))
    reference = read_small(f"{git_dir}/HEAD").partition("ref: ")[2].strip()
    yield from _refused([f"{common}/{reference}"] if reference else [])
    if (found := checkout_obstacle(place)) is not None:
        yield found


def _named_by(config: str, git_dir: str) -> Iterator[str]:
    for line in config.splitlines():
        key, _, value = line.partition("=")
        if key.rpartition("]")[2].strip().lower() in _FILE_KEYS:
            path = value.strip().replace('"', "").replace("\\", "")
            yield os.path.join(git_dir, os.path.expanduser(path))  # noqa: PTH111, PTH118


def _refused(paths: Iterable[str], limit: float = MAX_BYTES) -> Iterator[FileRefused]:
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            continue
        if path != os.devnull and not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            yield FileRefused(path, "is no ordinary file")
        elif found.st_size > limit and not stat.S_ISDIR(found.st_mode):
            yield FileRefused(path, f"is larger than {MAX_BYTES // 1024} KiB")
