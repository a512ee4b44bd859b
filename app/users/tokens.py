"""Bearer tokens of clients: `tokens.json` in the data directory holds their names and SHA-256 hashes, never the tokens.

A token is 256 random bits, so that its hash needs no salt and no slowness: there is nothing to guess.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.util import clock
from app.util.private_json import PrivateFileStamp, PrivateJson

PREFIX = "ost_"


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """`created` and `expires` in epoch milliseconds; without `expires` it holds until it is revoked. `user`: None for a token of
    the operator."""

    name: str
    hash: str
    created: int
    expires: int | None = None
    user: str | None = None
    read_only: bool = False

    def holds(self) -> bool:
        return self.expires is None or self.expires > clock.now_ms()


class TokenNameTaken(Exception):
    pass


class TokenStore:
    """Reads the file again when another process has replaced it, so that what is created or revoked counts at once."""

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
        """As if a token had been created: from now on every request needs a login."""
        with self._file.updating() as content:
            content.setdefault("", {})

    def create(self, name: str, lifetime_ms: int | None = None, *, user: str | None = None, read_only: bool = False) -> str:
        """Returns the new token, which cannot be read later. Raises TokenNameTaken."""
        token = PREFIX + secrets.token_urlsafe(32)
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
        """A token that holds. All are compared, in constant time."""
        given = _hash(token)
        matching = [entry for entry in self.entries() if hmac.compare_digest(entry.hash, given) and entry.holds()]
        return matching[0] if matching else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _entries(content: dict[str, Any]) -> list[TokenEntry]:
    """Ignores entries in any other form than this module writes."""
    return [
        TokenEntry(
            name, fields["hash"], fields["created"], fields.get("expires"), fields.get("user"), bool(fields.get("readOnly"))
        )
        for name, fields in content.items()
        if isinstance(fields, dict) and isinstance(fields.get("hash"), str) and fields["hash"].isascii() and "created" in fields
    ]
