"""Makes a backup while servers work: one tar.gz. It gets its name when it is complete.

The database is copied first, then the rest: a snapshot or an output is written before the part that names it, so all that the
copied database names exists. A repository of snapshots is not collected while it is copied.
"""

import asyncio
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app import __version__
from app.project.snapshot.lock import collection_lock
from app.record import migrate
from app.record.engine import Connection, Database, sqlite_file
from app.record.maintenance import copy_database
from app.transfer.backup.manifest import (
    DATA,
    DATABASE,
    MANIFEST,
    SNAPSHOTS,
    BackupError,
    BackupProgress,
    Manifest,
    belongings,
    files_below,
    repositories,
)
from app.util import clock
from app.util.data_files import lock_directory

COPYING = "Copying"
COMPRESSION = 3
"""Snapshots are compressed already; a higher level takes thrice as long for little."""


async def back_up(data_dir: Path, database: Database, target: Path, progress: BackupProgress) -> Manifest:
    """Raises BackupError, OSError, StorageError, SnapshotFailed; then there is no file at `target`."""
    _require_free(target, data_dir)
    manifest = Manifest(version=__version__, created=clock.now_ms(), database="sqlite", revision="")
    with _scratch(target) as scratch:
        (scratch / "backup").touch(0o600)
        with tarfile.open(scratch / "backup", "w:gz", compresslevel=COMPRESSION) as tar:
            archive = BackupArchive(tar, manifest, data_dir, progress)
            await _add_database(database, scratch / DATABASE, archive)
            await _add_files(data_dir, database, archive)
            archive.finish()
        os.sync()
        (scratch / "backup").rename(target)
    return manifest


def _require_free(target: Path, data_dir: Path) -> None:
    if target.exists():
        raise BackupError(f"{target} exists already: name another.")
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise BackupError(f"{target} is in the data directory: a backup belongs somewhere else.")


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A directory beside the target, emptied of the files of a killed backup."""
    path = target.with_name(f".{target.name}.partial")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_directory(path) as is_ours:
        if not is_ours:
            raise BackupError(f"Another backup is writing {target}: wait until it ends.")
        for left in path.iterdir():
            left.unlink()
        try:
            yield path
        finally:
            shutil.rmtree(path)


class BackupArchive:
    """What has been written to a backup so far."""

    def __init__(self, tar: tarfile.TarFile, manifest: Manifest, data_dir: Path, progress: BackupProgress) -> None:
        self.manifest = manifest
        self.progress = progress
        self._tar = tar
        self._data_dir = data_dir
        self._count = self._total = 0

    def add_all(self, found: Iterable[Path], *, may_vanish: bool = False) -> None:
        paths = list(found)
        self._total += len(paths)
        for path in paths:
            try:
                self.add(path, path.relative_to(self._data_dir).as_posix())
            except FileNotFoundError:
                if not may_vanish:
                    raise
            self._count += 1
            self.progress(COPYING, self._count, self._total)

    def add(self, path: Path, name: str) -> None:
        member = tarfile.TarInfo(f"{DATA}/{name}")
        if path.is_dir():
            member.type, member.mode = tarfile.DIRTYPE, stat.S_IMODE(path.stat().st_mode)
            self._tar.addfile(member)
            return
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            member.size, member.mode = status.st_size, stat.S_IMODE(status.st_mode)
            self._tar.addfile(member, file)  # data that is appended meanwhile is left out
        self.manifest.count += 1
        self.manifest.bytes += member.size

    def finish(self) -> None:
        """Writes the manifest, without which a backup is not complete."""
        text = self.manifest.model_dump_json(indent=2).encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode = len(text), 0o600
        self._tar.addfile(member, io.BytesIO(text))


async def _add_database(database: Database, copy: Path, archive: BackupArchive) -> None:
    manifest = archive.manifest
    if database.dialect == "postgresql":
        manifest.database, revision = "postgresql", await database.read(migrate.revision)
    else:
        revision = await database.read(lambda source: _add_sqlite(source, copy, archive))
    if revision is None:
        raise BackupError("There is nothing to back up: the database is empty.")
    manifest.revision = revision


def _add_sqlite(source: Connection, copy: Path, archive: BackupArchive) -> str | None:
    copy.touch(0o600)
    revision = copy_database(source, copy, lambda done, total: archive.progress("Database", done, total))
    archive.add(copy, DATABASE)
    copy.unlink()
    return revision


async def _add_files(data_dir: Path, database: Database, archive: BackupArchive) -> None:
    own = _database_files(database)
    for top in belongings(data_dir):
        if top.name == SNAPSHOTS:
            await _add_repositories(data_dir, database, archive)
        else:
            files = (path for path in files_below(top) if path.resolve() not in own)
            await asyncio.to_thread(archive.add_all, files, may_vanish=True)


def _database_files(database: Database) -> set[Path]:
    """The database's own files, with those that SQLite puts beside it. The database is copied separately, wherever it is."""
    if (file := sqlite_file(database.url)) is None:
        return set()
    path = file.resolve()
    return {path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", "-journal")}


async def _add_repositories(data_dir: Path, database: Database, archive: BackupArchive) -> None:
    for repository in repositories(data_dir):
        await asyncio.to_thread(archive.add_all, [data_dir / SNAPSHOTS, repository.parent])
        async with collection_lock(repository.absolute(), database.locks):
            await asyncio.to_thread(archive.add_all, files_below(repository))
