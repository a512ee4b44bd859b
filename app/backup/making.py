"""Makes a backup while servers work: a directory, or one tar.gz. It appears under its name when it is whole.

The database is copied first, then the rest: a snapshot or an output is written before the part that names it, so what the copied
database names is there. A repository of snapshots is not collected while it is copied.
"""

import asyncio
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from app import __version__
from app.backup.manifest import (
    DATA,
    DATABASE,
    MANIFEST,
    SNAPSHOTS,
    BackupError,
    BackupFile,
    BackupProgress,
    Manifest,
    belongings,
    files_below,
    repositories,
    write_manifest,
)
from app.snapshot.lock import collection_lock
from app.storage import migrate
from app.storage.engine import Connection, Database
from app.storage.maintenance import copy_database
from app.util import clock
from app.util.server_locks import lock_directory

# Where a backup is written to: a directory, or a tar.gz of the same layout.

COMPRESSION = 3
"""Snapshots are compressed already; more takes thrice as long for little."""


class MeasuredFile:
    """The first `size` bytes of a file, and their checksum: more may be appended meanwhile."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self._file = file
        self._left = size
        self._hash = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        data = self._file.read(self._left if count < 0 else min(count, self._left))
        self._left -= len(data)
        self._hash.update(data)
        return data

    def checksum(self) -> str:
        """Raises OSError unless all of it was there."""
        if self._left:
            raise OSError(f"a file became shorter by {self._left} bytes while it was copied")
        return self._hash.hexdigest()


class Sink(Protocol):
    def add_directory(self, name: str, mode: int) -> None: ...
    def add_file(self, name: str, file: MeasuredFile, mode: int) -> None: ...
    def finish(self, manifest: Manifest) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class DirectorySink:
    def __init__(self, path: Path) -> None:
        self._path = path
        (path / DATA).mkdir(mode=0o700, parents=True)
        path.chmod(0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def add_directory(self, name: str, mode: int) -> None:
        path = self._path / DATA / name
        path.mkdir(exist_ok=True)
        path.chmod(mode | 0o700)

    def add_file(self, name: str, file: MeasuredFile, mode: int) -> None:
        path = self._path / DATA / name
        path.touch(0o600)
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        path.chmod(mode)

    def finish(self, manifest: Manifest) -> None:
        (self._path / MANIFEST).write_bytes(write_manifest(manifest))


class ArchiveSink:
    def __init__(self, path: Path) -> None:
        path.touch(0o600)
        self._tar = tarfile.open(path, "w:gz", compresslevel=COMPRESSION)  # noqa: SIM115  closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tar.close()

    def add_directory(self, name: str, mode: int) -> None:
        member = tarfile.TarInfo(f"{DATA}/{name}")
        member.type, member.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(member)

    def add_file(self, name: str, file: MeasuredFile, mode: int) -> None:
        self._add(f"{DATA}/{name}", file, file.size, mode)

    def finish(self, manifest: Manifest) -> None:
        text = write_manifest(manifest)
        self._add(MANIFEST, io.BytesIO(text), len(text), 0o600)

    def _add(self, name: str, file: MeasuredFile | io.BytesIO, size: int, mode: int) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, mode
        self._tar.addfile(member, file)


ARCHIVES = (".tar.gz", ".tgz")
COPYING = "Copying"


def is_archive(target: Path) -> bool:
    return target.name.endswith(ARCHIVES)


async def back_up(data_dir: Path, database: Database, target: Path, progress: BackupProgress) -> Manifest:
    """Raises BackupError, OSError, StorageError, SnapshotFailed; nothing stands at `target` then."""
    _require_free(target, data_dir)
    with _scratch(target) as scratch:
        whole = await _write(data_dir, database, scratch, is_archive(target), progress)
        os.sync()
        (scratch / "backup").rename(target)
    return whole


def _require_free(target: Path, data_dir: Path) -> None:
    if target.exists() and (not target.is_dir() or is_archive(target) or any(target.iterdir())):
        raise BackupError(f"{target} exists already: name another.")
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise BackupError(f"{target} is in the data directory: a backup belongs somewhere else.")


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A directory beside the target, emptied of what a killed backup left there."""
    path = target.with_name(f".{target.name}.partial")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_directory(path) as is_ours:
        if not is_ours:
            raise BackupError(f"Another backup is writing {target}: wait until it ends.")
        _empty(path)
        try:
            yield path
        finally:
            shutil.rmtree(path)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


async def _write(data_dir: Path, database: Database, scratch: Path, as_archive: bool, progress: BackupProgress) -> Manifest:
    manifest = Manifest(version=__version__, created=clock.now_ms(), database="sqlite", revision="")
    sink: Sink = ArchiveSink(scratch / "backup") if as_archive else DirectorySink(scratch / "backup")
    with sink:
        collected = Collected(sink, manifest, data_dir, progress)
        await _add_database(database, scratch / DATABASE, collected)
        await _add_files(data_dir, database, collected)
        sink.finish(manifest)
    return manifest


class Collected:
    """What has been written to a backup so far."""

    def __init__(self, sink: Sink, manifest: Manifest, data_dir: Path, progress: BackupProgress) -> None:
        self.manifest = manifest
        self.progress = progress
        self._sink = sink
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
        if path.is_dir():
            mode = stat.S_IMODE(path.stat().st_mode)
            self._sink.add_directory(name, mode)
            self.manifest.directories[name] = mode
            return
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            measured, mode = MeasuredFile(file, status.st_size), stat.S_IMODE(status.st_mode)
            self._sink.add_file(name, measured, mode)
        self.manifest.files[name] = BackupFile(size=status.st_size, mode=mode, sha256=measured.checksum())


async def _add_database(database: Database, copy: Path, collected: Collected) -> None:
    manifest = collected.manifest
    if database.dialect == "postgresql":
        manifest.database, revision = "postgresql", await database.read(migrate.revision)
    else:
        revision = await database.read(lambda source: _add_sqlite(source, copy, collected))
    if revision is None:
        raise BackupError("There is nothing to back up: the database is empty.")
    manifest.revision = revision


def _add_sqlite(source: Connection, copy: Path, collected: Collected) -> str | None:
    copy.touch(0o600)
    revision = copy_database(source, copy, lambda done, total: collected.progress("Database", done, total))
    collected.add(copy, DATABASE)
    copy.unlink()
    return revision


async def _add_files(data_dir: Path, database: Database, collected: Collected) -> None:
    own = _database_files(database)
    for top in belongings(data_dir):
        if top.name == SNAPSHOTS:
            await _add_repositories(data_dir, database, collected)
        else:
            files = (path for path in files_below(top) if path.resolve() not in own)
            await asyncio.to_thread(collected.add_all, files, may_vanish=True)


def _database_files(database: Database) -> set[Path]:
    """Where it stands, with what SQLite puts beside it: it is copied already, wherever that is and however it is called."""
    if database.dialect != "sqlite":
        return set()
    path = Path(database.engine.url.database or "").resolve()
    return {path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", "-journal")}


async def _add_repositories(data_dir: Path, database: Database, collected: Collected) -> None:
    for repository in repositories(data_dir):
        await asyncio.to_thread(collected.add_all, [data_dir / SNAPSHOTS, repository.parent])
        async with collection_lock(repository.absolute(), database.locks).held():
            await asyncio.to_thread(collected.add_all, files_below(repository))
