"""Restores a backup: unpacked and checked beside the present content, brought to this version's schema, then exchanged for it."""

import gzip
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO

from app.record.maintenance import upgrade_file
from app.record.migrate import HEAD
from app.transfer.backup.manifest import (
    ASIDE,
    DATA,
    DATABASE,
    MANIFEST,
    BackupDamaged,
    BackupError,
    BackupProgress,
    Manifest,
    belongings,
    database_files,
    read_manifest,
)
from app.transfer.backup.placing import INCOMING, STAGING, commit_restore, exchange, finish_restore
from app.util.data_files import lock_directory

# Reads a backup into a directory, and checks each file against the manifest while it is written.

UNPACKING = "Unpacking"
_BLOCK = 1 << 20
_OUT_OF_PLACE = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


def unpack(source: Path, target: Path, progress: BackupProgress) -> Manifest:
    """Writes the content to `target`, which is empty, with its modes. Raises BackupError, and OSError for a full disk."""
    if not source.is_file():
        raise BackupError(f"There is no file {source}.")
    try:
        return _unpack(source, target, progress)
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, *_OUT_OF_PLACE) as error:
        raise BackupDamaged(f"{source} is damaged ({error}): use another backup.") from error


def _unpack(source: Path, target: Path, progress: BackupProgress) -> Manifest:
    manifest: Manifest | None = None
    size, directories = source.stat().st_size, dict[Path, int]()
    with source.open("rb") as packed, gzip.open(packed) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
        for member in archive:
            if member.name == MANIFEST and member.isfile():
                manifest = read_manifest(_content(archive, member).read())
                continue
            path = target / _name(member)
            if member.isdir():
                path.mkdir(mode=0o700, exist_ok=True)
                directories[path] = member.mode | 0o700
            else:
                _write(_content(archive, member), path, member.mode)
            progress(UNPACKING, packed.tell(), size)
        while unpacked.read(_BLOCK):  # the checksum of the whole archive is at its end
            pass
    if manifest is None:
        raise BackupDamaged(f"{source} is no backup, or is not whole: it has no {MANIFEST}. Use another one.")
    for path, mode in directories.items():
        path.chmod(mode)
    return manifest


def _name(member: tarfile.TarInfo) -> str:
    """Relative to the data directory. A backup has only files and directories: without links in it, none can lead elsewhere."""
    top, _, name = member.name.partition("/")
    parts = PurePosixPath(name)
    if top != DATA or not (member.isfile() or member.isdir()):
        raise BackupDamaged(f"The backup has {member.name!r}, which no backup has: use another one.")
    if parts.is_absolute() or not parts.parts or ".." in parts.parts or "\0" in name:
        raise BackupDamaged(f"The backup names {name!r}, which is outside of the data directory.")
    return name


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    return content


def _write(file: IO[bytes], path: Path, mode: int) -> None:
    """Others cannot read the file until it is complete."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(file, copy)
        os.fchmod(descriptor, mode)


_OF_A_DATA_DIRECTORY = (DATABASE, "servers", "volume", "snapshot")


def restore(
    source: Path,
    data_dir: Path,
    dialect: str,
    require_no_server: Callable[[], None],
    progress: BackupProgress,
    *,
    force: bool = False,
) -> tuple[Manifest, Path | None]:
    """Also returns where the previous content is now, if there was any. `dialect`: of the configured database. Raises
    BackupError, OSError or StorageError, and leaves the directory as it was."""
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
            commit_restore(data_dir, aside.name)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        exchange(data_dir)
    return manifest, aside if aside.exists() else None


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
