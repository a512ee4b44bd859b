"""The servers of one database: each has a row, written with its heartbeat.

On PostgreSQL a row is written every two seconds. A server alone on SQLite writes its row at the start, while sessions run, and
when somebody asks for its health.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from app import __version__
from app.record.engine import Connection, Database, StorageError
from app.record.repositories import work_rows
from app.record.statements import statements
from app.record.writer import Writer
from app.schema.base import Wire
from app.sessions.lease import Leases

FORGET_AFTER_MS = 3_600_000
"""How long a dead server stays in the list."""


class ReplicaHealth(Wire):
    """A server of this database. `started` in epoch ms, `heartbeatAge` in ms, by the database's clock. `journalLag`: how many
    events its clients had not been given yet at its last heartbeat."""

    id: str
    address: str
    version: str
    started: int
    heartbeat_age: int
    alive: bool
    running_sessions: int
    journal_lag: int | None = None


class Replicas:
    """`address` and `volume` are this server's: `volume` is the id of the one with its data directory, None on SQLite. `cursor`:
    the newest sequence that its clients were given."""

    def __init__(self, database: Database, writer: Writer, leases: Leases, address: str, volume: str | None) -> None:
        self._database = database
        self._writer = writer
        self._leases = leases
        self._row = {"id": leases.owner, "version": __version__, "address": address, "volume": volume}
        self.cursor: Callable[[], int | None] = lambda: None
        leases.on_heartbeat = self._write

    async def start(self) -> None:
        await self.forget_dead()
        await self._leases.write_heartbeat()
        if self._database.dialect != "sqlite":
            self._leases.heartbeat_while_idle()

    async def unregister(self) -> None:
        """For a server that stops, when its heartbeat has ended. A row that cannot be deleted is forgotten as a dead server's."""
        with suppress(StorageError):
            await self._writer.commit(lambda tx: tx.execute(tx.sql.delete_replica, {"gone": self._leases.owner}))

    async def forget_dead(self) -> None:
        gone = [{"gone": each.id} for each in await self.all() if not each.alive and each.heartbeat_age > FORGET_AFTER_MS]
        if gone:
            await self._writer.commit(lambda tx: tx.execute(tx.sql.delete_replica, gone))

    async def all(self) -> list[ReplicaHealth]:
        """The oldest first, including dead ones that are not forgotten yet."""
        rows = await self._database.read(work_rows.replicas)
        return [
            ReplicaHealth(
                id=row.id,
                address=row.address,
                version=row.version,
                started=row.started,
                heartbeat_age=max(0, row.age),
                alive=self._leases.is_alive(row.id, row.age),
                running_sessions=row.running,
                journal_lag=row.journal_lag,
            )
            for row in rows
        ]

    def _write(self, connection: Connection) -> None:
        connection.execute(statements(connection.dialect.name).upsert_replica, {**self._row, "cursor": self.cursor()})


# Whether this server can serve: a thread is free, and its heartbeat is fresh or a write that is tried now succeeds.

FRESH_SECONDS = 3.0
"""Seconds in which a stored heartbeat is fresh. On PostgreSQL there always is one, so a load balancer's checks cost nothing."""
WRITE_SECONDS = 1.0
"""How long a check waits for a write. The write goes on meanwhile, and later checks wait for the same one."""
TRY_AGAIN_SECONDS = 1.0
THREAD_SECONDS = 2.0
"""How long a check waits for one of the threads that requests use."""


class HealthCheck:
    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._write: asyncio.Task[None] | None = None
        self._thread: asyncio.Future[object] | None = None
        self._tried = 0.0

    async def failure(self) -> str | None:
        """Why this server cannot serve; None when it can."""
        if self._thread is None or self._thread.done():  # otherwise one still waits for a thread
            self._thread = asyncio.get_running_loop().run_in_executor(None, object)
        if not (await asyncio.wait({self._thread}, timeout=THREAD_SECONDS))[0]:
            return f"No thread has been free for {THREAD_SECONDS:g} s: what they do in the files of projects hangs."
        if self._leases.heartbeat_age() < FRESH_SECONDS:
            return None
        write = self._try_write()
        if not (await asyncio.wait({write}, timeout=WRITE_SECONDS))[0]:
            return f"The database has stored no heartbeat of this server for {self._leases.heartbeat_age():.0f} s."
        error = write.exception()
        return f"The database accepts no writes: {getattr(error, 'orig', None) or error}" if error else None

    def _try_write(self) -> asyncio.Task[None]:
        """The write that is under way or has just failed, or else a new one."""
        now = time.monotonic()
        if self._write is None or (self._write.done() and now - self._tried > TRY_AGAIN_SECONDS):
            self._tried = now
            self._write = asyncio.create_task(self._leases.write_heartbeat(), name="health check")
        return self._write
