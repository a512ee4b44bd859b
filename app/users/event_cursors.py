"""Event ids for users who do not hear of everybody's sessions: the journal's numbers would tell how much others do.

An id is one block of AES: the sequence; random bits, so that two ids of one place in the journal differ, or zeros for the id that
an event of the journal keeps; and a mark of the user, so that only the user who was given an id can resume from it. Whoever makes
one up resumes at a random place of their own events.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from functools import lru_cache

from app.bus.event_id import NEVER_GIVEN, PREFIX
from app.users.server_secret import ServerSecret

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
