"""What a backup holds: each directory and file with its mode, each file with its checksum; and its own checksum."""

import hashlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from app.backup.errors import BackupDamaged, BackupError
from app.storage.migrate import HEAD, known_revisions

BackupProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is, and how much there is."""

FORMAT = 1
MANIFEST = "manifest.json"
DATA = "data"
"""Where in a backup the data directory's content is."""


class BackupFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int
    mode: int
    sha256: str


class Manifest(BaseModel):
    """Paths are relative to the data directory. `created` in epoch milliseconds; `revision` is the database's schema."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    version: str
    created: int
    database: Literal["sqlite", "postgresql"]
    revision: str
    directories: dict[str, int] = {}
    files: dict[str, BackupFile] = {}


def write_manifest(manifest: Manifest) -> bytes:
    content = manifest.model_dump()
    return orjson.dumps({"manifest": content, "sha256": _checksum(content)}, option=orjson.OPT_INDENT_2)


def read_manifest(text: bytes) -> Manifest:
    """Raises BackupDamaged; BackupError for one that a newer version wrote."""
    try:
        content = orjson.loads(text)
        found, checksum = content["manifest"], content["sha256"]
        if _checksum(found) != checksum:
            raise BackupDamaged(f"The backup is damaged: {MANIFEST} is not as it was written. Take another backup.")
        if found["format"] != FORMAT:
            raise BackupError(f"The backup has format {found['format']}, this version reads {FORMAT}: use a newer opensession.")
        return Manifest.model_validate(found)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
        raise BackupDamaged(f"The backup is damaged: {MANIFEST} cannot be read. Take another backup.") from error


def require_readable(manifest: Manifest) -> None:
    """Raises BackupError if this version cannot work with its database, or a path leads out of the data directory."""
    if manifest.revision > HEAD:
        raise BackupError(
            f"The backup's database is at revision {manifest.revision}, this version knows only {HEAD}: use a newer opensession."
        )
    if manifest.revision not in known_revisions():
        raise BackupError(f"The backup's database is at revision {manifest.revision}, which no version of opensession has.")
    for path in (*manifest.directories, *manifest.files):
        require_inside(path)


def require_inside(path: str) -> None:
    """Raises BackupDamaged for a path that could lead out of the directory that it is relative to."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or not parts.parts or ".." in parts.parts or "\0" in path:
        raise BackupDamaged(f"The backup names {path!r}, which is outside of the data directory.")


def _checksum(content: object) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
