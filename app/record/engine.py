"""The database: one engine, one writer thread and several reader threads.

SQLAlchemy is used synchronously in these threads rather than through its asyncio layer: a grouped commit then needs one switch
to another thread instead of one for every statement.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy import Connection as Connection
from sqlalchemy import Engine as Engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from app.record.postgres import Locks, Reconnecting, locks_of, postgres_engine, wait_for_writers
from app.util.data_files import try_lock

# A lock between servers that share an SQLite file, needed for SQLite before 3.51.3.
#
# These versions can damage a database in WAL mode if two connections write or checkpoint at the same time (the "WAL-reset bug").
# Within a server, one thread does both. Between servers that share a data directory, this lock makes a transaction and its
# checkpoint exclusive.

FIXED_IN = (3, 51, 3)
_POLL_SECONDS = 0.002


class WriterLockTimeout(SQLAlchemyError):
    """Another server held the lock for longer than the timeout, or the file system has no locks."""


def has_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    return version < FIXED_IN


class WriterLock:
    """Create one per server: two objects exclude each other. `database` None: one that serializes its writers itself."""

    def __init__(self, database: Path | None, timeout_seconds: float) -> None:
        self._path = database and database.with_name(f"{database.name}-writer")
        self._timeout_seconds = timeout_seconds
        self._descriptor: int | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises WriterLockTimeout."""
        if self._path is None:
            yield
            return
        try:
            descriptor = self._acquire(self._path)
        except OSError as error:
            raise WriterLockTimeout(
                f"{self._path} cannot be locked: {error.strerror}. The data directory needs a local disk."
            ) from error
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _acquire(self, path: Path) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + self._timeout_seconds
        while not try_lock(self._descriptor):
            if time.monotonic() > deadline:
                raise WriterLockTimeout(f"another server has been writing to the database for {self._timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)
        return self._descriptor


T = TypeVar("T")

StorageError = SQLAlchemyError
"""Any failure of the database: a full disk, a lock timeout, a violated constraint."""

_READERS = 3
_STEP_PAGES = 256
"""Pages that one transaction gives back to the file system: a megabyte."""
_BUSY_TIMEOUT_MS = 15_000


def words_of(error: StorageError) -> str:
    """The database's own. SQLite needs room on the disk to read what a killed server has left, and does not say so."""
    words = str(getattr(error, "orig", None) or error)
    return f"{words} (is its disk full?)" if words == "disk I/O error" else words


class DatabaseUnusable(Exception):
    """The server cannot run on the configured database. The message says what to do."""


def make_engine(url: str) -> Engine:
    """Raises DatabaseUnusable."""
    parsed = _parsed(url)
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return _sqlite_engine(parsed)
        case "postgresql" | "postgresql+psycopg" | "postgres":
            try:
                return postgres_engine(parsed, _READERS + 1, _BUSY_TIMEOUT_MS)
            except ImportError as error:
                raise DatabaseUnusable(f"PostgreSQL needs psycopg ({error}): pip install 'psycopg[binary]'") from error
        case other:
            raise DatabaseUnusable(f"{other} is not supported: use postgresql+psycopg://… or sqlite:///….")


def _parsed(url: str) -> URL:
    """Raises DatabaseUnusable, which quotes nothing of the address: it may have a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable(
            "OPENSESSION_DATABASE_URL is no address of a database: postgresql+psycopg://user:password@host:5432/database, or "
            "sqlite:////path. In a password / : @ ? # and % are percent-encoded."
        ) from None


def sqlite_file(url: str) -> Path | None:
    """None for another database. Raises DatabaseUnusable."""
    parsed = _parsed(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def without_password(url: str) -> str:
    """The URL for PostgreSQL's programs, which ask for the password or have it from PGPASSWORD."""
    parsed = make_url(url)
    query = {name: value for name, value in parsed.query.items() if name != "password"}
    return parsed.set(drivername="postgresql", query=query)._replace(password=None).render_as_string(hide_password=False)


def _sqlite_engine(url: URL) -> Engine:
    """An engine in WAL mode with full synchronous commits: acknowledged writes survive a power cut."""
    if url.database:
        require_writable(Path(url.database).parent, Path(url.database))
        # SQLite lets others read a new file. An existing one is not opened: closing it would drop this process's locks on it.
        try:
            os.close(os.open(url.database, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise _unwritable(Path(url.database), error.strerror or str(error)) from error
    # The pool rolls a returned connection back: a commit that fails, as on a full disk, leaves its transaction open.
    # Errors are logged, and quote no row.
    options: dict[str, Any] = {"pool_size": _READERS + 2, "paramstyle": "named", "hide_parameters": True}
    engine = create_engine(url, connect_args={"check_same_thread": False}, **options)
    event.listen(engine, "connect", _configure_sqlite)
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


def writer_lock(engine: Engine) -> WriterLock:
    path = engine.url.database
    needs_lock = engine.dialect.name == "sqlite" and path and has_reset_bug()
    return WriterLock(Path(path) if path and needs_lock else None, _BUSY_TIMEOUT_MS / 1000)


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Transactions begin explicitly (`transaction`), so that reads are consistent and a write takes its lock at once."""
    connection.isolation_level = None
    # One damaged row must not hide the others.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    if connection.execute("PRAGMA page_count").fetchone() == (0,):
        # Only before anything is written to a new file (see `give_back`): on another file this would wait for whoever writes.
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


@contextmanager
def transaction(engine: Engine, *, writes: bool = False) -> Iterator[Connection]:
    """All reads in it are of one moment. A transaction that writes locks other writers out from its beginning, so that what it
    has read stays true.

    It is begun by a statement of its own: an engine with a listener for the event "begin" looks for listeners of each statement
    too, which takes 9 µs a statement, as long as the statement itself."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        elif writes:
            wait_for_writers(connection, _BUSY_TIMEOUT_MS)
        yield connection


@contextmanager
def single_write(engine: Engine) -> Iterator[Connection]:
    """A transaction of a program that is no server."""
    with closing(writer_lock(engine)) as lock, lock.held(), transaction(engine, writes=True) as connection:
        yield connection


class Database:
    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = make_engine(url)
        self.dialect = self.engine.dialect.name
        self._in_write = _transactions(self.engine, writes=True)
        self._in_read = _transactions(self.engine, writes=False)
        self._writer = ThreadPoolExecutor(1, "database-writer")
        self._readers = ThreadPoolExecutor(_READERS, "database-reader")
        self._writer_lock = writer_lock(self.engine)
        self.locks: Locks = locks_of(self.engine)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Runs `query` in a read transaction on a reader thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._in_read, query)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction on the writer thread. Returns after the commit; rolls back if `work` raises."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work)

    async def give_back(self) -> None:
        """Gives the room of deleted rows back to the file system, in steps, between which others write. PostgreSQL's autovacuum
        does that by itself."""
        while self.dialect == "sqlite" and await self.write(_give_back_some):
            pass

    def write_heartbeat(self, work: Callable[[Connection], T]) -> T:
        """Like `write`, for a thread of its own. On PostgreSQL it waits for no other writer: one may take longer than a server
        without a heartbeat counts as alive."""
        if self.dialect == "sqlite":
            return self._writer.submit(self._write, work).result()
        return Reconnecting(self.engine, partial(transaction, self.engine)).run(work)

    def close(self) -> None:
        self.locks.close()
        self._writer.shutdown()
        self._readers.shutdown()
        with self._writer_lock.held():
            self.engine.dispose()
        self._writer_lock.close()

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._writer_lock.held():
            result: T = self._in_write(work)
            return result


def _give_back_some(connection: Connection) -> bool:
    """Returns whether more is left. A file that was made before files could shrink keeps its room."""
    free = "SELECT freelist_count FROM pragma_freelist_count, pragma_auto_vacuum WHERE auto_vacuum = 2"
    pages: int = connection.exec_driver_sql(free).scalar() or 0
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()  # returns a row without columns for each page
    return pages > _STEP_PAGES


def _transactions(engine: Engine, *, writes: bool) -> Callable[[Callable[[Connection], Any]], Any]:
    """Returns what runs a function in a transaction of its own, which is rolled back if the function raises."""
    if engine.dialect.name == "postgresql":
        # Reads have a consistent view for each transaction, as SQLite has it.
        options: dict[str, Any] = {} if writes else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        engine = engine.execution_options(**options)
        return Reconnecting(engine, partial(transaction, engine, writes=writes)).run

    def run(work: Callable[[Connection], Any]) -> Any:
        with transaction(engine, writes=writes) as connection:
            return work(connection)

    return run
