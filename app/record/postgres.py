"""PostgreSQL's engine, transactions that begin again when it is restarted, and locks among the servers of one database. psycopg
is the extra `postgres`: it is imported with the first engine."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from app.util.tasks import LoopHeartbeat, ProcessLocks

T = TypeVar("T")

Begin = Callable[[], AbstractContextManager[Connection]]

RECONNECT_SECONDS = 5.0
"""Longer than a server goes on with its turns without a heartbeat: then they are taken over, rather than ended with an error."""
RECONNECT_PAUSE_SECONDS = 0.1

TRANSACTION = "transaction"
"""The key under which a connection notes its transaction's number."""

_OUTCOME = text("SELECT txid_status(:number)")


class OutcomeUnknown(SQLAlchemyError):
    """The connection broke during a commit, whose outcome could not be found out. The transaction must not be repeated."""

    def __init__(self) -> None:
        super().__init__("the connection to the database broke during a commit, and whether it is stored could not be found out")


def may_be_committed(error: Exception) -> bool:
    """Whether a transaction with this error must not be run again."""
    return isinstance(error, OutcomeUnknown) or (isinstance(error, DBAPIError) and error.connection_invalidated)


class Reconnecting:
    """Begins again, for a while, if the connection is lost before the commit, as when the database is restarted. If it is lost
    during the commit, asks the database for the outcome."""

    def __init__(self, engine: Engine, begin: Begin) -> None:
        self._engine = engine
        self._begin = begin

    def run(self, work: Callable[[Connection], T]) -> T:
        """Raises OutcomeUnknown."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            committing: list[int | None] = []  # the transaction's number, once it is to be committed
            try:
                with self._begin() as connection:
                    result = work(connection)
                    committing.append(connection.info.pop(TRANSACTION, None))
                return result
            except SQLAlchemyError as error:
                if not is_disconnected(error):
                    raise
                if any(self._is_committed(number) for number in committing):
                    return result
                if time.monotonic() > deadline:
                    raise
            time.sleep(RECONNECT_PAUSE_SECONDS)

    def _is_committed(self, number: int | None) -> bool:
        """A transaction that only read has no number and is run again. Raises OutcomeUnknown."""
        if number is None:
            return False
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                with self._engine.connect() as connection:
                    outcome = connection.execute(_OUTCOME, {"number": number}).scalar_one()
            except SQLAlchemyError as error:
                if not is_disconnected(error):
                    raise OutcomeUnknown from error  # this database never had it: another has replaced it
                outcome = "in progress"
            if outcome in ("committed", "aborted"):
                return bool(outcome == "committed")
            if outcome is None or time.monotonic() > deadline:
                raise OutcomeUnknown
            time.sleep(RECONNECT_PAUSE_SECONDS)


def is_disconnected(error: SQLAlchemyError) -> bool:
    """Whether no connection could be made, or it broke."""
    is_unmade = isinstance(error, OperationalError | InterfaceError) and error.statement is None
    return is_unmade or (isinstance(error, DBAPIError) and error.connection_invalidated)


log = logging.getLogger(__name__)

_LOCK_NOT_AVAILABLE = "55P03"
WRITERS_LOCK = 7_363_736_911_502_291
"""The key of the advisory lock. Any number that no other program uses in the same database."""


def _text_without_nul() -> Any:
    """A dumper that replaces NUL, which PostgreSQL's text cannot hold, by U+FFFD. So a lookup finds nothing instead of failing.
    JSON bodies escape NUL."""
    from psycopg.types.string import StrDumperUnknown

    class TextWithoutNul(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd"))

    return TextWithoutNul


IDLE_IN_TRANSACTION_MS = 2_500
"""PostgreSQL ends a transaction that its server has left idle for so long, even if nobody waits."""
STANDSTILL_MS, LOOK_MS = 1_500, 400
"""How long a server that is frozen or cut off within a transaction may hold the others up, and how often these look for one."""
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""What is acknowledged is on the disk, even if the database or its user is set up for speed instead."""
_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""In seconds. An idle connection to a machine that is gone is given up after eleven."""


def postgres_engine(url: URL, connections: int, timeout_ms: int) -> Engine:
    """`timeout_ms` limits the wait for a lock, for a connection and for the acknowledgement of sent data. Without it, a network
    that drops packets would block all writes for a quarter of an hour."""

    dumper = _text_without_nul()

    def configure(connection: Any, _record: object) -> None:
        connection.adapters.register_dumper(str, dumper)
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = {timeout_ms}")
        connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        connection.execute(_DURABLE)
        connection.autocommit = False

    limits = {"connect_timeout": timeout_ms // 1000, "tcp_user_timeout": timeout_ms, **_KEEPALIVES}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=connections + 2,  # one holds locks for as long as the server runs, one is for heartbeats
        pool_pre_ping=True,
        hide_parameters=True,  # errors are logged
        connect_args={"client_encoding": "utf8", **limits},
    )
    event.listen(engine, "connect", configure)
    return engine


def wait_for_writers(connection: Connection, timeout_ms: int) -> None:
    """Serializes the writers of all servers, as SQLite does: the journal's numbers are committed in order, and what a writer
    reads stays valid until it commits. Each writer notes its transaction's number, by which the outcome is found. Looks now and
    then whether the present writer stands still."""
    deadline = time.monotonic() + timeout_ms / 1000
    # The function after FROM runs first, so this wait has a limit of its own.
    lock = (
        f"SELECT pg_advisory_xact_lock({WRITERS_LOCK}), txid_current(), set_config('lock_timeout', '{timeout_ms}', true)"
        f" FROM set_config('lock_timeout', '{min(LOOK_MS, timeout_ms)}', true)"
    )
    while True:
        try:
            connection.info[TRANSACTION] = connection.exec_driver_sql(lock).one()[1]
            return
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE or time.monotonic() > deadline:
                raise
        connection.connection.rollback()  # to PostgreSQL the transaction is over, and nothing was done in it yet
        if connection.exec_driver_sql(_END_STANDSTILL).all():
            log.warning("a server stands still, or is cut off, within a transaction: its connection to the database was ended")


_END_STANDSTILL = f"""
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database() AND database = datid
    AND classid = {WRITERS_LOCK >> 32} AND objid = {WRITERS_LOCK & 0xFFFFFFFF}
    AND wait_event_type = 'Client' AND state_change < clock_timestamp() - interval '{STANDSTILL_MS} ms'
"""
"""PostgreSQL itself ends a transaction that is idle, but not one that waits for the rest of a message, for the next of several
messages that are sent together, or for its answer to be read: such a one counts as active."""


# Locks by name, held while a value is read, changed and written back, among the servers of a database.

KEEP_ALIVE_SECONDS, IDLE_MS = 2.0, 6_000
"""The database closes a connection that is idle for longer than IDLE_MS."""
_UNLOCK = "pg_advisory_unlock(:key)"
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.003, 0.05


class DatabaseLocks:
    """PostgreSQL's advisory locks, all on one connection: they are gone when this server dies, or is frozen or cut off for some
    seconds. Callers here wait in order; of several servers the first that looks gets the lock. Raises StorageError if the
    database cannot be asked."""

    is_shared = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._here = ProcessLocks()
        self._thread = ThreadPoolExecutor(1, "database-locks")
        self._connection: Connection | None = None
        self._keep_alive: LoopHeartbeat | None = None

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
        if self._keep_alive is None:
            self._keep_alive = LoopHeartbeat("database locks", KEEP_ALIVE_SECONDS, self._show_life)
        async with self._here.lock(name):
            await self._acquire(key)
            try:
                yield
            finally:
                await asyncio.shield(self._unlock(key))

    async def _acquire(self, key: int) -> None:
        """A connection that breaks meanwhile loses no waiter: it is made again, for a while."""
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
            pause = min(2 * pause, MAX_POLL_SECONDS)

    async def _take(self, key: int) -> bool:
        """A lock that is acquired although its caller was cancelled meanwhile is released."""
        got: list[bool] = []

        def take(connection: Connection) -> bool:
            got.append(_query_bool(connection, "pg_try_advisory_lock(:key)", key=key))
            return got[-1]

        try:
            return await self._run(take)
        except asyncio.CancelledError:
            # The thread does one thing after another, so this release knows how the attempt ended.
            self._thread.submit(
                self._on_connection, lambda connection: got == [True] and _query_bool(connection, _UNLOCK, key=key)
            )
            raise

    async def _unlock(self, key: int) -> None:
        with suppress(SQLAlchemyError):  # the lock went with its connection
            await self._run(lambda connection: _query_bool(connection, _UNLOCK, key=key))

    def _show_life(self) -> None:
        with suppress(SQLAlchemyError):  # the next caller that locks gets the error
            self._thread.submit(self._on_connection, lambda connection: _query_bool(connection, "true")).result()

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


def _query_bool(connection: Connection, query: str, **values: int) -> bool:
    return bool(connection.execute(text(f"SELECT {query}"), values).scalar_one())
