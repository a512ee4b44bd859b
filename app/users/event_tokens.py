"""Tokens that open one thing each, an event stream or a terminal: a browser's EventSource and WebSocket can send no header, and
what stands in an address gets into logs."""

import hashlib
import secrets
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

import orjson

from app.storage.writer import Tx, Writer
from app.users.principal import OPERATOR, Principal, Role
from app.util import clock

T = TypeVar("T")

LIFETIME_MS = 30_000
MOST = 1_000


class EventTokens(Protocol):
    async def issue(self, principal: Principal = OPERATOR) -> tuple[str, int]:
        """A token for a stream of the principal, and when it expires (epoch milliseconds)."""
        ...

    async def redeem(self, token: str) -> Principal | None:
        """Whose stream it opens. Only once. Takes no time that tells more than whether there is such a token."""
        ...


class OneTimeTokens(Generic[T]):
    """Of one server. Of too many that wait, the oldest goes."""

    def __init__(self, lifetime_ms: int) -> None:
        self._lifetime_ms = lifetime_ms
        self._issued: OrderedDict[str, tuple[int, T]] = OrderedDict()
        """When each expires, and what it opens."""

    def issue(self, opened: T) -> tuple[str, int]:
        """A token, and when it expires (epoch milliseconds)."""
        token, expires = secrets.token_urlsafe(32), clock.now_ms() + self._lifetime_ms
        self._issued[token] = expires, opened
        if len(self._issued) > MOST:
            self._issued.popitem(last=False)
        return token, expires

    def redeem(self, token: str) -> T | None:
        """What it opens. Only once."""
        expires, opened = self._issued.pop(token, (0, None))
        return opened if expires > clock.now_ms() else None


class MemoryEventTokens:
    def __init__(self) -> None:
        self._tokens = OneTimeTokens[Principal](LIFETIME_MS)

    async def issue(self, principal: Principal = OPERATOR) -> tuple[str, int]:
        return self._tokens.issue(principal)

    async def redeem(self, token: str) -> Principal | None:
        return self._tokens.redeem(token)


class StoredEventTokens:
    """Of all servers of a database, by its clock. It has the hashes alone."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def issue(self, principal: Principal = OPERATOR) -> tuple[str, int]:
        """Raises StorageError."""
        token = secrets.token_urlsafe(32)
        row = {"hash": _hash(token), "principal": orjson.dumps(principal).decode()}

        def issue(tx: Tx) -> None:
            tx.execute(tx.sql.delete_old_event_tokens, {"lifetime": LIFETIME_MS})
            tx.execute(tx.sql.put_event_token, row)

        await self._writer.commit(issue)
        return token, clock.now_ms() + LIFETIME_MS

    async def redeem(self, token: str) -> Principal | None:
        """Raises StorageError."""
        wanted = {"given": _hash(token), "lifetime": LIFETIME_MS}
        redeemed = await self._writer.commit(lambda tx: tx.execute(tx.sql.redeem_event_token, wanted).scalar_one_or_none())
        return _principal(redeemed) if redeemed else None


def _principal(stored: str) -> Principal:
    fields = orjson.loads(stored)
    return Principal(fields["name"], Role(fields["role"]), fields["read_only"], tuple(fields["roots"]))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
