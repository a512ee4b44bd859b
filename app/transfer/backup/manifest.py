"""Which files of a data directory belong in a backup, and the manifest of a backup."""

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from app.record.engine import DatabaseUnusable
from app.record.migrate import HEAD, known_revisions

# Why a backup cannot be made or restored. Each message says what to do.


class BackupError(Exception):
    """Nothing was changed."""


class BackupDamaged(BackupError):
    """The content of a backup is not what was written."""


class RestoreUnderWay(DatabaseUnusable):
    """Another process is restoring into the data directory."""


# The files of a data directory that belong in a backup: all but those of this machine, of the moment, or copied otherwise.

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
"""The index follows a checkout on this machine: git makes it anew."""


def belongings(data_dir: Path) -> list[Path]:
    """The files and directories that belong in a backup, without the database."""
    return sorted(path for path in data_dir.iterdir() if not _matches(path.name, _LEFT_OUT))


def database_files(data_dir: Path) -> list[Path]:
    """The database's files, with the WAL and others beside it."""
    return sorted(data_dir.glob(f"{DATABASE}*"))


def repositories(data_dir: Path) -> list[Path]:
    return sorted(path for path in (data_dir / SNAPSHOTS).glob("*/*") if path.is_dir())


def files_below(top: Path) -> Iterator[Path]:
    """`top`, and each directory and file in it, directories first."""
    yield top
    if top.is_dir():
        for folder, directories, files in os.walk(top):
            kept = [name for name in sorted(files) if not _matches(name, _LEFT_OUT_OF_REPOSITORIES)]
            yield from (Path(folder, name) for name in (*sorted(directories), *kept))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


BackupProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

FORMAT = 2
MANIFEST = "manifest.json"
"""The last member of the archive."""
DATA = "data"
"""The directory in a backup that has the data directory's content."""


class Manifest(BaseModel):
    """`created` in epoch milliseconds; `revision` is the database's schema; `count` and `bytes` are of the files."""

    format: int = FORMAT
    version: str
    created: int
    database: Literal["sqlite", "postgresql"]
    revision: str
    count: int = 0
    bytes: int = 0


def read_manifest(text: bytes) -> Manifest:
    """Raises BackupDamaged; BackupError for the manifest of another version that this one cannot restore."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BackupDamaged(f"The backup is damaged: {MANIFEST} cannot be read. Take another backup.") from error
    if manifest.format != FORMAT:
        raise BackupError(f"The backup has format {manifest.format}, this version reads {FORMAT}: use the one that made it.")
    if manifest.revision > HEAD:
        raise BackupError(
            f"The backup's database is at revision {manifest.revision}, this version knows only {HEAD}: use a newer opensession."
        )
    if manifest.revision not in known_revisions():
        raise BackupError(f"The backup's database is at revision {manifest.revision}, which no version of opensession has.")
    return manifest
