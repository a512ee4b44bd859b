"""Where a backup is written to: a directory, or a tar.gz of the same layout."""

import hashlib
import io
import shutil
import tarfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from app.backup.manifest import DATA, MANIFEST, Manifest, write_manifest

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
