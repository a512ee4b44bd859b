"""Locks by name, held while a value is read, changed and written back: in this process, or among the servers of a database."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from app.storage.reconnecting import RECONNECT_SECONDS, is_disconnected
from app.util.loop_heartbeat import LoopHeartbeat

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS, IDLE_MS = 2.0, 6_000
"""The database closes a connection that is idle for longer than IDLE_MS."""
_UNLOCK = "pg_advisory_unlock(:key)"
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.003, 0.05


class ProcessLocks:
    is_shared = False
    """Whether they keep servers apart, and not only what works in this one."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def close(self) -> None:
        pass


class DatabaseLocks:
    """PostgreSQL's advisory locks, all on one connection: they go with it when this server dies, or is frozen or cut off for some
    seconds. Who waits here waits in the order of asking; among servers the first that looks gets the lock. Raises StorageError
    where the database cannot be asked."""

    is_shared = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._here = ProcessLocks()
        self._thread = ThreadPoolExecutor(1, "database-locks")
        self._connection: Connection | None = None
        self._keep_alive: LoopHeartbeat | None = None

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        key = _key(name)
        if self._keep_alive is None:
            self._keep_alive = LoopHeartbeat("database locks", KEEP_ALIVE_SECONDS, self._show_life)
        async with self._here.lock(name):
            await self._acquire(key)
            try:
                yield
            finally:
                await asyncio.shield(self._unlock(key))

    async def _acquire(self, key: int) -> None:
        """A connection that breaks meanwhile took nothing from who waits: it is made again, for a while."""
        pause, broken_since = FIRST_POLL_SECONDS, math.inf
        while True:
            try:
                if await self._take(key):
                    return
                broken_since = math.inf
            except SQLAlchemyError as error:
                broken_since = min(broken_since, time.monotonic())
                if not is_disconnected(error) or time.monotonic() - broken_since > RECONNECT_SECONDS:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL_SECONDS)

    async def _take(self, key: int) -> bool:
        """What is got though its waiter was cancelled meanwhile is given back."""
        got: list[bool] = []

        def take(connection: Connection) -> bool:
            got.append(_ask(connection, "pg_try_advisory_lock(:key)", key=key))
            return got[-1]

        try:
            return await self._run(take)
        except asyncio.CancelledError:
            # The thread does one thing after another: this one knows how the attempt ended.
            self._thread.submit(self._on_connection, lambda connection: got == [True] and _ask(connection, _UNLOCK, key=key))
            raise

    async def _unlock(self, key: int) -> None:
        with suppress(SQLAlchemyError):  # the lock went with its connection
            await self._run(lambda connection: _ask(connection, _UNLOCK, key=key))

    def _show_life(self) -> None:
        with suppress(SQLAlchemyError):  # the next one that locks is told
            self._thread.submit(self._on_connection, lambda connection: _ask(connection, "true")).result()

    async def _run(self, work: Callable[[Connection], bool]) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._on_connection, work)

    def _on_connection(self, work: Callable[[Connection], bool]) -> bool:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.execute(text(f"SET idle_session_timeout = {IDLE_MS}"))
        try:
            return work(self._connection)
        except SQLAlchemyError:
            log.warning("the connection that holds locks is broken: they are free for others now")
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
            raise

    def close(self) -> None:
        if self._keep_alive is not None:
            self._keep_alive.close()
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()


Locks = ProcessLocks | DatabaseLocks


def locks_of(engine: Engine) -> Locks:
    return DatabaseLocks(engine) if engine.dialect.name == "postgresql" else ProcessLocks()


def _ask(connection: Connection, query: str, **values: int) -> bool:
    return bool(connection.execute(text(f"SELECT {query}"), values).scalar_one())


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
