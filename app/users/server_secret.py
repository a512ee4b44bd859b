"""The server's own secret, of which users' keys are encrypted and event ids are sealed.

OPENSESSION_SECRET_KEY, or a random one that is made on first use in `secret.json` in the data directory, which only its owner can
read. Of several keys (in the setting separated by commas) the first encrypts; all of them decrypt, so that they can be rotated.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from app.bus.base import NEVER_GIVEN, PREFIX
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


# Event ids for users who do not hear of everybody's sessions: the journal's numbers would tell how much others do.
#
# An id is one block of AES: the sequence; random bits, so that two ids of one place in the journal differ, or zeros for the id
# that an event of the journal keeps; and a mark of the user, so that only the user who was given an id can resume from it.
# Whoever makes one up resumes at a random place of their own events.

_BLOCK = struct.Struct(">Q4s4s")
_PURPOSE = b"event ids"


class UserCursors:
    def __init__(self, keys: tuple[bytes, ...], name: str) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        ciphers = [Cipher(algorithms.AES(key), modes.ECB()) for key in keys]
        self._encrypt = ciphers[0].encryptor().update
        self._decrypt = [cipher.decryptor().update for cipher in ciphers]
        self._mark = hashlib.sha256(name.encode()).digest()[:4]

    def seal(self, seq: int, *, stable: bool = False) -> bytes:
        tail = bytes(4) if stable else secrets.token_bytes(4)
        return base64.urlsafe_b64encode(self._encrypt(_BLOCK.pack(seq, tail, self._mark))).rstrip(b"=")

    def open(self, cursor: str) -> int:
        block = _decoded(cursor.removeprefix(PREFIX))
        for decrypt in self._decrypt if block else ():
            seq, _, mark = _BLOCK.unpack(decrypt(block))
            if mark == self._mark and seq < 2**62:
                return int(seq)
        return NEVER_GIVEN


class EventCursors:
    def __init__(self, secret: ServerSecret) -> None:
        self._secret = secret

    def for_user(self, name: str) -> UserCursors:
        return _cursors(tuple(hmac.digest(key, _PURPOSE, "sha256") for key in self._secret.all_keys()), name)


@lru_cache(1024)
def _cursors(keys: tuple[bytes, ...], name: str) -> UserCursors:
    return UserCursors(keys, name)


def _decoded(cursor: str) -> bytes:
    try:
        block = base64.b64decode(cursor.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
    return block if len(block) == _BLOCK.size else b""
