"""What of a data directory belongs in a backup: all of it but what is of this machine, of the moment, or copied otherwise."""

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

DATABASE = "opensession.db"
ASIDE = "before-restore-"
SNAPSHOTS = "snapshot"
_LEFT_OUT = (
    "servers",
    "sandbox",  # caches
    "worktree",  # checkouts of repositories, which are no part of the data directory
    "volume*",  # the directory's name: a copy is another directory
    "lost+found",
    f"{DATABASE}*",
    f"{ASIDE}*",
    "lock.*",
    "*.lock",
    ".*",  # temporary files
)
_LEFT_OUT_OF_REPOSITORIES = ("index*", "keep.*", "gc.pid", "*.lock", "*.new", "tmp_*")
"""The index follows a checkout as it is on this machine: git makes it anew."""


def belongings(data_dir: Path) -> list[Path]:
    """Its files and directories that belong in a backup, without the database."""
    return sorted(path for path in data_dir.iterdir() if not _matches(path.name, _LEFT_OUT))


def database_files(data_dir: Path) -> list[Path]:
    """With the WAL and what else stands beside it."""
    return sorted(data_dir.glob(f"{DATABASE}*"))


def repositories(data_dir: Path) -> list[Path]:
    return sorted(path for path in (data_dir / SNAPSHOTS).glob("*/*") if path.is_dir())


def files_below(top: Path) -> Iterator[Path]:
    """It, and each directory and file in it, directories first."""
    yield top
    if top.is_dir():
        for folder, directories, files in os.walk(top):
            kept = [name for name in sorted(files) if not _matches(name, _LEFT_OUT_OF_REPOSITORIES)]
            yield from (Path(folder, name) for name in (*sorted(directories), *kept))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
