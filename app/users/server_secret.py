"""The server's own secret, of which users' keys are encrypted and event ids are sealed.

OPENSESSION_SECRET_KEY, or a random one that is made on first use in `secret.json` in the data directory, which only its owner can
read. Of several keys (in the setting separated by commas) the first encrypts; all of them decrypt, so that they can be rotated.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.util.private_json import PrivateFileStamp, PrivateJson

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class ServerSecret:
    """Reads the file again when another process has replaced it."""

    def __init__(self, setting: str | None, data_dir: Path) -> None:
        self._setting = [key.strip() for key in (setting or "").split(",") if key.strip()]
        self._file = PrivateJson(data_dir / "secret.json")
        self._stamp: PrivateFileStamp | None = None
        self._keys: tuple[bytes, ...] = tuple(map(_hashed, self._setting))

    @property
    def is_in_file(self) -> bool:
        return not self._setting

    def all_keys(self) -> Sequence[bytes]:
        """Of 32 bytes each; the first is the one in force."""
        if not self.is_in_file:
            return self._keys
        stamp = self._file.stamp()
        if stamp is None or stamp != self._stamp or not self._keys:
            self._keys = tuple(map(_hashed, self._stored()))
            self._stamp = self._file.stamp()
        return self._keys

    def _stored(self) -> list[str]:
        with self._file.updating() as content:
            keys: list[str] = content.setdefault("keys", [secrets.token_urlsafe(32)])
        return list(keys)

    def box(self) -> "MultiFernet":
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self.all_keys()])

    def add_key(self) -> None:
        """A new one, which encrypts from now on."""
        with self._file.updating() as content:
            content["keys"] = [secrets.token_urlsafe(32), *content.get("keys", [])]

    def drop_old_keys(self) -> None:
        with self._file.updating() as content:
            content["keys"] = content["keys"][:1]


def _hashed(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
