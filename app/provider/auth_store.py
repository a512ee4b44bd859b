"""Keys that clients stored: `auth.json`, a map from provider id to its credentials, readable by its owner alone."""

import os
import tempfile
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from app.schema.model import Auth

_AUTH: TypeAdapter[Auth] = TypeAdapter(Auth)
_Stamp = tuple[int, int, int]


class AuthStore:
    """Reads the file again when another process has replaced it. Entries that are not valid are passed over, and kept."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "auth.json"
        self._stamp: _Stamp | None = None
        self._entries: dict[str, Auth] = {}

    def all(self) -> dict[str, Auth]:
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._entries = _valid(self._read())
            self._stamp = stamp
        return dict(self._entries)

    def get(self, provider_id: str) -> Auth | None:
        return self.all().get(provider_id)

    def set(self, provider_id: str, auth: Auth) -> None:
        entry = _AUTH.dump_python(auth, mode="json", by_alias=True, exclude_none=True)
        self._write({**self._read(), provider_id: entry})

    def remove(self, provider_id: str) -> None:
        raw = self._read()
        if raw.pop(provider_id, None) is not None:
            self._write(raw)

    def _keep_broken_file(self) -> None:
        if self.path.exists() and not isinstance(_json(self.path), dict):
            self.path.replace(self.path.with_suffix(".json.bad"))

    def _current_stamp(self) -> _Stamp | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[str, Any]:
        """{} for a missing or unreadable file: a broken key file must not stop the server."""
        content = _json(self.path)
        return content if isinstance(content, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        """A file that cannot be read is kept aside as `auth.json.bad`, not lost.

        mkstemp creates its file with mode 0600, so the keys are never readable by others, not even for a moment.
        """
        self._keep_broken_file()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".auth-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(entries, option=orjson.OPT_INDENT_2))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._stamp = None


def _json(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None


def _valid(raw: dict[str, Any]) -> dict[str, Auth]:
    parsed = ((provider_id, _parse(entry)) for provider_id, entry in raw.items())
    return {provider_id: auth for provider_id, auth in parsed if auth is not None}


def _parse(entry: Any) -> Auth | None:
    try:
        return _AUTH.validate_python(entry)
    except ValidationError:
        return None
