"""Restores a backup: unpacked and checked beside what is there, brought to this version's schema, then exchanged."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from app.backup.contents import ASIDE, DATABASE, belongings, database_files
from app.backup.errors import BackupError
from app.backup.manifest import BackupProgress, Manifest
from app.backup.placing import INCOMING, STAGING, decide, exchange, finish_restore
from app.backup.unpacking import unpack
from app.storage.backup import upgrade_file
from app.storage.migrate import HEAD
from app.util.server_locks import lock_directory

_OF_A_DATA_DIRECTORY = (DATABASE, "servers", "volume", "snapshot")


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    """`aside` has what was there before, if anything was."""

    manifest: Manifest
    aside: Path | None


def restore(
    source: Path,
    data_dir: Path,
    dialect: str,
    require_no_server: Callable[[], None],
    progress: BackupProgress,
    *,
    force: bool = False,
) -> RestoredBackup:
    """`dialect` is the configured database's. Raises BackupError, OSError or StorageError; the directory is as it was then."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    finish_restore(data_dir)
    _require_room(data_dir, force)
    require_no_server()
    staging = data_dir / STAGING
    staging.mkdir(mode=0o700)
    aside = _free_name(data_dir)
    with lock_directory(staging):
        try:
            manifest = _stage(source, staging / INCOMING, dialect, progress)
            require_no_server()
            decide(data_dir, aside.name)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        exchange(data_dir)
    return RestoredBackup(manifest, aside if aside.exists() else None)


def _free_name(data_dir: Path) -> Path:
    first = data_dir / f"{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}"
    names = (first if not number else first.with_name(f"{first.name}-{number}") for number in count())
    return next(name for name in names if not name.exists())


def _stage(source: Path, incoming: Path, dialect: str, progress: BackupProgress) -> Manifest:
    incoming.mkdir(mode=0o700)
    manifest = unpack(source, incoming, progress)
    if manifest.database != dialect:
        raise BackupError(
            f"The backup is of a server with {manifest.database}, and OPENSESSION_DATABASE_URL names {dialect}: "
            "set it as it was for that server."
        )
    if dialect == "sqlite" and manifest.revision != HEAD:
        upgrade_file(incoming / DATABASE)
    return manifest


def _require_room(data_dir: Path, force: bool) -> None:
    found = [*database_files(data_dir), *belongings(data_dir)]
    if not found:
        return
    if not force:
        raise BackupError(
            f"{data_dir} is not empty: it has {found[0].name}. Set OPENSESSION_DATA_DIR to an empty directory, "
            f"or move what is there aside with --force."
        )
    if not any((data_dir / name).exists() for name in _OF_A_DATA_DIRECTORY):
        raise BackupError(f"{data_dir} is no data directory: it has {found[0].name}. Set OPENSESSION_DATA_DIR to another one.")
    if mounted := [path for path in found if os.path.ismount(path)]:
        raise BackupError(f"{mounted[0]} is a volume of its own, which cannot be moved aside: restore into another directory.")
