"""The database: one engine, one writer thread and several reader threads.

SQLAlchemy is used synchronously in these threads rather than through its asyncio layer: a grouped commit then needs one switch
to another thread instead of one for every statement. What SQLite finds by a key takes less time than such a switch: that is read
on the event loop's own thread.
"""

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, create_engine, event, make_url, text
from sqlalchemy import Connection as Connection
from sqlalchemy import Engine as Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from app.storage.locks import Locks, locks_of
from app.storage.prepared import PreparedStatement
from app.storage.reconnecting import Reconnecting
from app.storage.writer_lock import WriterLock, has_reset_bug
from app.util.worker_thread import WorkerThread

T = TypeVar("T")

StorageError = SQLAlchemyError
"""Any failure of the database: a full disk, a lock timeout, a violated constraint."""

_READERS = 3
_BUSY_TIMEOUT_MS = 15_000


class DatabaseUnusable(Exception):
    """The server cannot run on the configured database. The message says what to do."""


def make_engine(url: str) -> Engine:
    """Raises DatabaseUnusable."""
    parsed = make_url(url)
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return _sqlite_engine(parsed)
        case "postgresql" | "postgresql+psycopg" | "postgres":
            return _postgres_engine(parsed)
        case other:
            raise DatabaseUnusable(f"{other} is not supported: use postgresql+psycopg://… or sqlite:///….")


def sqlite_file(url: str) -> Path | None:
    """None for another database."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def without_password(url: str) -> str:
    """As PostgreSQL's programs read it; they ask for the password, or have it from PGPASSWORD."""
    parsed = make_url(url)
    query = {name: value for name, value in parsed.query.items() if name != "password"}
    return parsed.set(drivername="postgresql", query=query)._replace(password=None).render_as_string(hide_password=False)


def _postgres_engine(url: URL) -> Engine:
    try:
        from app.storage.postgres import postgres_engine
    except ImportError as error:
        raise DatabaseUnusable(f"PostgreSQL needs psycopg ({error}): pip install 'psycopg[binary]'") from error
    return postgres_engine(url, _READERS + 1, _BUSY_TIMEOUT_MS)


def _sqlite_engine(url: URL) -> Engine:
    """In WAL mode with full synchronous commits: acknowledged writes survive a power cut."""
    if url.database:
        require_writable(Path(url.database).parent, Path(url.database))
    engine = create_engine(url, connect_args={"check_same_thread": False}, pool_size=_READERS + 2, paramstyle="named")
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_transaction)
    return engine


def require_writable(directory: Path, *files: Path) -> None:
    """Creates the directory if it is missing. Raises DatabaseUnusable."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(directory, error.strerror or str(error)) from error
    for path in (directory, *(file for file in files if file.exists())):
        if not os.access(path, os.W_OK):
            raise _unwritable(path, "no write permission, or a read-only file system")


def _unwritable(path: Path, reason: str) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"{path} cannot be written ({reason}); sessions are stored there. "
        "Make it writable for this user, or set OPENSESSION_DATA_DIR to another directory."
    )


def writer_lock(engine: Engine) -> WriterLock | None:
    """None if the database itself is enough to serialize writers."""
    path = engine.url.database
    if engine.dialect.name != "sqlite" or not path or not has_reset_bug():
        return None
    return WriterLock(Path(path), _BUSY_TIMEOUT_MS / 1000)


def hold_writer_lock(lock: WriterLock | None) -> AbstractContextManager[None]:
    return lock.held() if lock else nullcontext()


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Transactions begin explicitly (`_begin_transaction`), so that reads are consistent and a write takes its lock at once."""
    connection.isolation_level = None
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        # Before anything is written to a new file: see storage/space.py. On any other it would wait for who writes.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    _use_wal(connection)
    for pragma in (
        f"busy_timeout={_BUSY_TIMEOUT_MS}",
        "synchronous=FULL",
        "foreign_keys=ON",
        "temp_store=MEMORY",
        "cache_size=-1000",  # KiB for each of five connections; a larger cache measured no faster
    ):
        connection.execute(f"PRAGMA {pragma}")


def _use_wal(connection: Any) -> None:
    """Retries, because SQLite ignores busy_timeout while another process switches a new database to WAL."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_transaction(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("begun"):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url)
        self._writes, self._reads, self._here = _transactions(self.engine)
        self._writer = WorkerThread("database-writer")
        self._readers = ThreadPoolExecutor(_READERS, "database-reader")
        self._writer_lock = writer_lock(self.engine)
        self.locks: Locks = locks_of(self.engine)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Runs `query` in a read transaction on a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, _read, self._reads, query)

    async def look_up(self, query: Callable[[Connection], T]) -> T:
        """The same for some rows that a key finds."""
        if self._here is not None:
            # Where the database is locked, or a text is not UTF-8, a reader thread waits, or repairs it.
            with suppress(OperationalError):
                return self._here.run(query)
        return await self.read(query)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction on the writer thread. Returns after the commit; rolls back if `work` raises."""
        return await self._writer.do(lambda: self._write(work))

    def write_in_thread(self, work: Callable[[Connection], T]) -> T:
        """The same for a thread that is not the event loop's."""
        return self._writer.wait_for(lambda: self._write(work))

    def close(self) -> None:
        self.locks.close()
        self._writer.close()
        self._readers.shutdown()
        for transactions in (self._writes, self._reads, self._here):
            if transactions is not None:
                transactions.close()
        with hold_writer_lock(self._writer_lock):
            self.engine.dispose()
        if self._writer_lock:
            self._writer_lock.close()

    def _write(self, work: Callable[[Connection], T]) -> T:
        with hold_writer_lock(self._writer_lock):
            return self._writes.run(work)


class _Transactions(Protocol):
    def run(self, work: Callable[[Connection], T]) -> T:
        """In a transaction of its own. Rolls back if `work` raises."""

    def close(self) -> None: ...


def _transactions(engine: Engine) -> tuple[_Transactions, _Transactions, _Transactions | None]:
    """Those that write, those that read on threads, and those that read on the event loop's thread."""
    writing = engine.execution_options(immediate=True)
    if engine.dialect.name == "sqlite":
        return _WritingConnection(writing), _KeptConnections(engine), _KeptConnection(engine, "PRAGMA busy_timeout=0")
    reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)  # a consistent view
    return Reconnecting(writing), Reconnecting(reading), None


class _KeptConnection:
    """A connection to SQLite that stays open, for reads. For SQLAlchemy all that is done on it is one transaction; each is begun
    and ended past it, because its own bookkeeping takes longer than a small transaction."""

    def __init__(self, engine: Engine, *pragmas: str) -> None:
        self._engine = engine.execution_options(begun=True)
        self._pragmas = pragmas
        self._connection: Connection | None = None
        self._driver: Any = None

    def run(self, work: Callable[[Connection], T]) -> T:
        connection = self._connection or self._open()
        self._driver.execute("BEGIN")
        try:
            return work(connection)
        finally:
            self._driver.rollback()

    def _open(self) -> Connection:
        self._connection = self._engine.connect()
        self._driver = self._connection.connection.driver_connection
        for pragma in self._pragmas:
            self._driver.execute(pragma)
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _WritingConnection(_KeptConnection):
    def run(self, work: Callable[[Connection], T]) -> T:
        connection = self._connection or self._open()
        connection.execute(_BEGIN)
        try:
            result = work(connection)
            connection.execute(_COMMIT)
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def _roll_back(self, connection: Connection) -> None:
        """The next transaction has another connection if this one fails at that too."""
        try:
            self._driver.rollback()
        except sqlite3.Error:
            connection.invalidate()
            self.close()


_BEGIN, _COMMIT = PreparedStatement(text("BEGIN IMMEDIATE")), PreparedStatement(text("COMMIT"))


class _KeptConnections:
    """As many as there are threads that use them at the same time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[_KeptConnection] = deque()

    def run(self, work: Callable[[Connection], T]) -> T:
        connection = self._idle.pop() if self._idle else _KeptConnection(self._engine)
        try:
            return connection.run(work)
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def _read(transactions: _Transactions, query: Callable[[Connection], T]) -> T:
    """Reads again with replacement characters if a text is not UTF-8: one damaged row must not hide the others."""
    try:
        return transactions.run(query)
    except OperationalError as error:
        if "Could not decode to UTF-8" not in str(error):
            raise
    return transactions.run(lambda connection: _read_leniently(connection, query))


def _read_leniently(connection: Connection, query: Callable[[Connection], T]) -> T:
    driver: Any = connection.connection.driver_connection
    driver.text_factory = lambda text: text.decode("utf-8", "replace")
    try:
        return query(connection)
    finally:
        driver.text_factory = str
