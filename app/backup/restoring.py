"""Restores a backup: unpacked and checked beside what is there, brought to this version's schema, then exchanged."""

import gzip
import hashlib
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from app.backup.manifest import (
    ASIDE,
    DATA,
    DATABASE,
    MANIFEST,
    BackupDamaged,
    BackupError,
    BackupFile,
    BackupProgress,
    Manifest,
    belongings,
    database_files,
    read_manifest,
    require_inside,
    require_readable,
)
from app.backup.placing import INCOMING, STAGING, decide, exchange, finish_restore
from app.storage.maintenance import upgrade_file
from app.storage.migrate import HEAD
from app.util.server_locks import lock_directory

# Reads a backup into a directory, and checks each file against the manifest while it is written.

UNPACKING = "Unpacking"
_BLOCK = 1 << 20
_OUT_OF_PLACE = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


def unpack(source: Path, target: Path, progress: BackupProgress) -> Manifest:
    """Writes the content to `target`, which is empty, with its modes. Raises BackupError, and OSError for a disk that is full."""
    if source.is_dir():
        return _unpack_directory(source, target, progress)
    if not source.exists():
        raise BackupError(f"There is no {source}.")
    try:
        return _unpack_archive(source, target, progress)
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, *_OUT_OF_PLACE) as error:
        raise BackupDamaged(f"{source} is damaged ({error}): use another backup.") from error


def _unpack_directory(source: Path, target: Path, progress: BackupProgress) -> Manifest:
    path = source / MANIFEST
    if not path.is_file():
        raise BackupError(f"{source} is no backup: it has no {MANIFEST}.")
    manifest = read_manifest(path.read_bytes())
    require_readable(manifest)
    for name, mode in manifest.directories.items():
        _make_directory(target / name, mode)
    for done, name in enumerate(manifest.files, 1):
        try:
            with (source / DATA / name).open("rb") as file:
                found = _write(file, target / name)
        except FileNotFoundError as error:
            raise BackupDamaged(f"The backup is damaged: {DATA}/{name} is missing. Use another backup.") from error
        _finish(target, name, found, manifest)
        progress(UNPACKING, done, len(manifest.files))
    return manifest


def _unpack_archive(source: Path, target: Path, progress: BackupProgress) -> Manifest:
    """The manifest comes last, so all is checked after it was written."""
    manifest: Manifest | None = None
    found: dict[str, str] = {}
    directories: set[str] = set()
    size = source.stat().st_size
    with source.open("rb") as packed, tarfile.open(fileobj=packed, mode="r:gz") as archive:
        for member in archive:
            if member.name == MANIFEST and member.isfile():
                manifest = read_manifest(_content(archive, member).read())
                continue
            name = _name(member)
            if member.isdir():
                directories.add(name)
                _make_directory(target / name, 0o700)
            else:
                found[name] = _write(_content(archive, member), target / name)
            progress(UNPACKING, packed.tell(), size)
    if manifest is None:
        raise BackupDamaged(f"{source} is no backup, or is not whole: it has no {MANIFEST}. Use another one.")
    require_readable(manifest)
    _require_same(found.keys() | directories, manifest)
    for name, checksum in found.items():
        _finish(target, name, checksum, manifest)
    for name, mode in manifest.directories.items():
        (target / name).chmod(mode | 0o700)
    return manifest


def _name(member: tarfile.TarInfo) -> str:
    """Relative to the data directory. A backup has files and directories: with no link in it, none can lead elsewhere."""
    top, _, name = member.name.partition("/")
    if top != DATA or not (member.isfile() or member.isdir()):
        raise BackupDamaged(f"The backup has {member.name!r}, which no backup has: use another one.")
    require_inside(name)
    return name


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    return content


def _require_same(found: Iterable[str], manifest: Manifest) -> None:
    expected = manifest.files.keys() | manifest.directories.keys()
    if different := sorted(expected ^ set(found)):
        raise BackupDamaged(f"The backup is damaged: {different[0]} is missing or does not belong to it. Use another backup.")


def _make_directory(path: Path, mode: int) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(mode | 0o700)


def _write(file: IO[bytes], path: Path) -> str:
    """Returns the checksum. Others cannot read the file."""
    checksum = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        for block in _blocks(file):
            checksum.update(block)
            copy.write(block)
    return checksum.hexdigest()


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _finish(target: Path, name: str, checksum: str, manifest: Manifest) -> None:
    expected: BackupFile = manifest.files[name]
    if checksum != expected.sha256:
        raise BackupDamaged(f"The backup is damaged: {name} is not as it was written. Use another backup.")
    (target / name).chmod(expected.mode)


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
