"""The server's own secret, which encrypts users' keys and seals event ids; and the tokens of clients."""

import base64
import hashlib
import hmac
import secrets
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from app.events.bus.base import NEVER_GIVEN, PREFIX, UNKNOWN_MARK, EventId
from app.users.principal import Principal, Role
from app.util import clock
from app.util.data_files import PrivateFileStamp, PrivateJson

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

    from app.record.writer import Tx, Writer


# The server's own secret is OPENSESSION_SECRET_KEY, or a random one that is made on first use in `secret.json` in the data
# directory, which only its owner can read. Of several keys (in the setting separated by commas) the first encrypts and all
# decrypt, so that they can be rotated.


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
        """The keys, of 32 bytes each; the first one encrypts."""
        if not self.is_in_file:
            return self._keys
        stamp = self._file.stamp()
        if stamp is None or stamp != self._stamp or not self._keys:
            self._keys, self._stamp = tuple(map(_hashed, self._stored())), stamp
        return self._keys

    def _stored(self) -> list[str]:
        with self._file.updating() as content:
            keys: list[str] = content.setdefault("keys", [secrets.token_urlsafe(32)])
        return list(keys)

    def box(self) -> "MultiFernet":
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self.all_keys()])

    def cursors(self, user: str) -> "UserCursors":
        return _cursors(tuple(hmac.digest(key, _PURPOSE, "sha256") for key in self.all_keys()), user)

    def add_key(self) -> None:
        """Adds a key, which encrypts from now on."""
        with self._file.updating() as content:
            content["keys"] = [secrets.token_urlsafe(32), *content.get("keys", [])]

    def drop_old_keys(self) -> None:
        with self._file.updating() as content:
            content["keys"] = content["keys"][:1]


def _hashed(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


# Event ids for users who do not receive all sessions' events: the journal's numbers would show how much others do. An id is one
# block of AES: the sequence; the id's mark, or random bits if that tells nothing, so that two ids of one position in the journal
# differ; and a mark of the user, so that only the user who was given an id can resume from it. Whoever makes one up resumes at a
# random position of their own events.

_BLOCK = struct.Struct(">QI4s")
_PURPOSE = b"event ids"


class UserCursors:
    def __init__(self, keys: tuple[bytes, ...], name: str) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        ciphers = [Cipher(algorithms.AES(key), modes.ECB()) for key in keys]
        self._encrypt = ciphers[0].encryptor().update
        self._decrypt = [cipher.decryptor().update for cipher in ciphers]
        self._user = hashlib.sha256(name.encode()).digest()[:4]

    def seal(self, seq: int, mark: int = UNKNOWN_MARK) -> bytes:
        told = mark if mark < UNKNOWN_MARK else UNKNOWN_MARK + secrets.randbits(31)
        return base64.urlsafe_b64encode(self._encrypt(_BLOCK.pack(seq, told, self._user))).rstrip(b"=")

    def open(self, cursor: str) -> EventId:
        block = _decoded(cursor.removeprefix(PREFIX))
        for decrypt in self._decrypt if block else ():
            seq, mark, user = _BLOCK.unpack(decrypt(block))
            if user == self._user and seq < 2**62:
                return EventId(seq, mark)
        return EventId(NEVER_GIVEN, UNKNOWN_MARK)


_cursors = lru_cache(1024)(UserCursors)


def _decoded(cursor: str) -> bytes:
    try:
        block = base64.b64decode(cursor.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except ValueError:
        return b""
    return block if len(block) == _BLOCK.size else b""


TOKEN_PREFIX = "ost_"


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """`created` and `expires` in epoch milliseconds; without `expires` it is valid until it is revoked. `user`: None for a token
    of the operator."""

    name: str
    hash: str
    created: int
    expires: int | None = None
    user: str | None = None
    read_only: bool = False

    def is_valid(self) -> bool:
        return self.expires is None or self.expires > clock.now_ms()


class TokenNameTaken(Exception):
    pass


class TokenStore:
    """Reads the file again when another process has replaced it, so that a token that is created or revoked counts at once."""

    def __init__(self, data_dir: Path) -> None:
        self._file = PrivateJson(data_dir / "tokens.json")
        self._stamp: PrivateFileStamp | None = None
        self._entries: list[TokenEntry] = []

    def in_use(self) -> bool:
        """Whether a token was ever created: the file stays after the last one is revoked."""
        return self._file.stamp() is not None

    def entries(self) -> list[TokenEntry]:
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._entries = _entries(self._file.read())
            self._stamp = stamp
        return self._entries

    def require_login(self) -> None:
        """From now on every request needs a login, as if a token had been created."""
        with self._file.updating() as content:
            content.setdefault("", {})

    def create(self, name: str, lifetime_ms: int | None = None, *, user: str | None = None, read_only: bool = False) -> str:
        """Returns the new token, which cannot be read later. Raises TokenNameTaken."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now = clock.now_ms()
        fields = {
            "hash": _hash(token),
            "created": now,
            "expires": now + lifetime_ms if lifetime_ms else None,
            "user": user,
            "readOnly": read_only or None,
        }
        with self._file.updating() as content:
            if name in content:
                raise TokenNameTaken(name)
            content[name] = {field: value for field, value in fields.items() if value is not None}
        return token

    def revoke(self, name: str) -> bool:
        """False if there is no token with that name."""
        with self._file.updating() as content:
            return content.pop(name, None) is not None

    def revoke_all_of(self, user: str) -> None:
        with self._file.updating() as content:
            for name in [name for name, fields in content.items() if isinstance(fields, dict) and fields.get("user") == user]:
                del content[name]

    def find(self, token: str) -> TokenEntry | None:
        """A valid token. Compares all, in constant time."""
        given = _hash(token)
        matching = [entry for entry in self.entries() if hmac.compare_digest(entry.hash, given) and entry.is_valid()]
        return matching[0] if matching else None

    def is_valid(self, hashed: str) -> bool:
        """Whether the token with this hash is valid."""
        return any(entry.hash == hashed and entry.is_valid() for entry in self.entries())


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _entries(content: dict[str, Any]) -> list[TokenEntry]:
    """Ignores entries of another form than this module writes."""
    return [
        TokenEntry(
            name, fields["hash"], fields["created"], fields.get("expires"), fields.get("user"), bool(fields.get("readOnly"))
        )
        for name, fields in content.items()
        if isinstance(fields, dict) and isinstance(fields.get("hash"), str) and fields["hash"].isascii() and "created" in fields
    ]


# Tokens that open one thing each, an event stream or a terminal: a browser's EventSource and WebSocket can send no header, and
# addresses get into logs.

T = TypeVar("T")

LIFETIME_MS = 30_000
MOST = 1_000


class OneTimeTokens(Generic[T]):
    """The tokens of one server. If too many wait, the oldest is dropped. The time that `redeem` takes tells only whether there is
    such a token."""

    def __init__(self, lifetime_ms: int) -> None:
        self._lifetime_ms = lifetime_ms
        self._issued: OrderedDict[str, tuple[int, T]] = OrderedDict()
        """By the token, when it expires, and what it opens."""

    async def issue(self, opened: T) -> tuple[str, int]:
        """A token, and its expiry (epoch milliseconds)."""
        token, expires = secrets.token_urlsafe(32), clock.now_ms() + self._lifetime_ms
        self._issued[token] = expires, opened
        if len(self._issued) > MOST:
            self._issued.popitem(last=False)
        return token, expires

    async def redeem(self, token: str) -> T | None:
        """What the token opens; only once."""
        expires, opened = self._issued.pop(token, (0, None))
        return opened if expires > clock.now_ms() else None


class StoredEventTokens:
    """The tokens of all servers of a database, by its clock. Stores only their hashes."""

    def __init__(self, writer: "Writer") -> None:
        self._writer = writer

    async def issue(self, principal: Principal) -> tuple[str, int]:
        """Raises StorageError."""
        token = secrets.token_urlsafe(32)
        row = {"hash": _hash(token), "principal": orjson.dumps(principal).decode()}

        def issue(tx: "Tx") -> None:
            tx.execute(tx.sql.delete_old_event_tokens, {"lifetime": LIFETIME_MS})
            tx.execute(tx.sql.put_event_token, row)

        await self._writer.commit(issue)
        return token, clock.now_ms() + LIFETIME_MS

    async def redeem(self, token: str) -> Principal | None:
        """Raises StorageError."""
        wanted = {"given": _hash(token), "lifetime": LIFETIME_MS}
        redeemed = await self._writer.commit(lambda tx: tx.execute(tx.sql.redeem_event_token, wanted).scalar_one_or_none())
        if redeemed is None:
            return None
        fields = orjson.loads(redeemed)
        return Principal(
            fields["name"], Role(fields["role"]), fields["read_only"], tuple(fields["roots"]), fields.get("token", "")
        )


EventTokens = OneTimeTokens[Principal] | StoredEventTokens
"""Each opens one stream of a principal."""
