"""Tokens for one event stream each: a browser's EventSource can send no header, and what stands in an address gets into logs."""

import hashlib
import secrets
from collections import OrderedDict
from typing import Protocol

from app.storage.engine import Connection
from app.storage.statements import Statements
from app.storage.writer import Change, Writer
from app.util import clock

LIFETIME_MS = 30_000
MOST = 1_000


class EventTokens(Protocol):
    async def issue(self) -> tuple[str, int]:
        """A token, and when it expires (epoch milliseconds)."""
        ...

    async def redeem(self, token: str) -> bool:
        """Only once. Takes no time that tells more than whether there is such a token."""
        ...


class MemoryEventTokens:
    """Of one server. Of too many that wait, the oldest goes."""

    def __init__(self) -> None:
        self._expiries: OrderedDict[str, int] = OrderedDict()

    async def issue(self) -> tuple[str, int]:
        token = secrets.token_urlsafe(32)
        expires = self._expiries[token] = clock.now_ms() + LIFETIME_MS
        if len(self._expiries) > MOST:
            self._expiries.popitem(last=False)
        return token, expires

    async def redeem(self, token: str) -> bool:
        return self._expiries.pop(token, 0) > clock.now_ms()


class StoredEventTokens:
    """Of all servers of a database, by its clock. It has the hashes alone."""

    def __init__(self, sql: Statements, writer: Writer) -> None:
        self._sql = sql
        self._writer = writer

    async def issue(self) -> tuple[str, int]:
        """Raises StorageError."""
        token = secrets.token_urlsafe(32)
        old = (self._sql.delete_old_event_tokens, [{"lifetime": LIFETIME_MS}])
        await self._writer.commit(Change([old, (self._sql.put_event_token, [{"hash": _hash(token)}])]))
        return token, clock.now_ms() + LIFETIME_MS

    async def redeem(self, token: str) -> bool:
        """Raises StorageError."""
        deleted: list[int] = []

        def delete(connection: Connection) -> None:
            wanted = {"given": _hash(token), "lifetime": LIFETIME_MS}
            deleted[:] = [connection.execute(self._sql.redeem_event_token, wanted).rowcount]

        await self._writer.commit(Change(work=delete))
        return deleted == [1]


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
