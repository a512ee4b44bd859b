"""Grouped commits: while one transaction is on its way to the disk, the changes that arrive wait and go together in the next.

A change is a function that runs in the transaction: it reads what it decides by, puts rows, and says what is announced after the
commit, in the order of posting. It may run twice, because the changes of a batch that failed are tried one by one. So it must
have no effect besides its transaction.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.sql.base import Executable

from app.events.bus.base import Event
from app.events.telemetry.observer import NOBODY, Observer
from app.record.engine import Database, StorageError
from app.record.postgres import may_be_committed
from app.record.repositories import session_rows
from app.record.statements import Put, Statements, statements
from app.schema.errors import ServiceError
from app.schema.event import AnnouncedEvent
from app.util import clock

log = logging.getLogger(__name__)

T = TypeVar("T")

Row = Mapping[str, Any]

RETRY_SECONDS = 15.0
"""How long the changes of a batch that failed are tried one by one while the database refuses them, from the start of the batch
on. Each may take as long as a wait for a lock, and all later changes wait for them."""


AT_ONCE = 1_000
"""Rows that one statement puts, and steps of a change after which it shows that it goes on."""


class WriterStopped(StorageError):
    """The writer was cancelled before it knew whether the change was stored."""


class StaleLease(StorageError):
    """Another server has taken the session over; this server's turn must stop writing."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An abandoned lease has a negative generation, so that every write is refused."""

    session_id: str
    owner: str
    generation: int

    @property
    def is_abandoned(self) -> bool:
        return self.generation < 0

    def key(self) -> dict[str, Any]:
        """Includes the generation: the session's next lease may be acquired while this one is being released."""
        return {"lease_session": self.session_id, "lease_owner": self.owner, "lease_generation": self.generation}


@dataclass(eq=False, slots=True)
class Chain:
    """Changes that need each other, such as a message and its parts: after one that fails, the others fail as it did, and none
    of their deltas is published."""

    failure: Exception | None = None


class Tx:
    """The transaction that several changes share. Their rows are written together, parents first, before the next query."""

    def __init__(self, connection: Connection, sql: Statements) -> None:
        self._connection = connection
        self.sql = sql
        self.events: list[Event] = []
        """The events of the change that runs now."""
        self._pending: dict[Put, list[Row]] = {}
        self._required: set[Lease] = set()
        self._steps = 0

    @property
    def connection(self) -> Connection:
        """For queries, which see all that was put so far, by earlier changes too."""
        self.flush()
        return self._connection

    def flush(self) -> None:
        for put in sorted(self._pending, key=lambda put: put.order):
            rows = self._pending[put]
            for start in range(0, len(rows), AT_ONCE):
                self._connection.execute(put.statement, rows[start : start + AT_ONCE])
        self._pending.clear()

    def put(self, put: Put, *rows: Row) -> None:
        if rows:
            self._pending.setdefault(put, []).extend(rows)
            self._show_life()

    def execute(self, statement: Executable, values: Row | Sequence[Row]) -> CursorResult[*tuple[Any, ...]]:
        result: CursorResult[*tuple[Any, ...]] = self.connection.execute(statement, values)
        return result

    def announce(self, event: Event) -> None:
        """Announces after the commit. An event may name its owner, if a session is deleted or gets a new owner."""
        self.events.append(event)
        self._show_life()

    def _show_life(self) -> None:
        """To PostgreSQL a transaction that sends nothing for long is one of a server that stands still."""
        self._steps += 1
        if self._steps % AT_ONCE == 0:
            self._connection.exec_driver_sql("SELECT 1")

    def require(self, lease: Lease | None) -> None:
        """Asks the database once whether the lease still holds, however many changes are made under it. Raises StaleLease if it
        does not. None: no lease is needed."""
        if lease is not None and lease not in self._required:
            if self._connection.execute(self.sql.check_lease, lease.key()).first() is None:
                raise _stale(lease)
            self._required.add(lease)

    def release(self, lease: Lease) -> None:
        """After the commit no server holds the session. Raises StaleLease."""
        if not self._connection.execute(self.sql.release_lease, lease.key()).rowcount:
            raise _stale(lease)
        self._required.discard(lease)


def _stale(lease: Lease) -> StaleLease:
    return StaleLease(f"another server runs {lease.session_id} now")


Work = Callable[[Tx], T]


class _CommitFuture(asyncio.Future[T]):
    """Is not cancelled with a task that awaits it: others wait for it too, and the change is stored or refused in any case. The
    task is cancelled when the outcome is known."""

    def cancel(self, msg: object = None) -> bool:
        return False


@dataclass(eq=False, slots=True)
class _PostedChange(Generic[T]):
    """`deltas`: published after the change. `done`: a caller waits for it."""

    work: Work[T]
    session_id: str | None
    chain: Chain
    done: _CommitFuture[T]
    deltas: list[tuple[Callable[[], None], Chain | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _CommittedChange:
    """The result of a change, and its events with their sequence."""

    result: Any
    events: list[Event]


Outcome = _CommittedChange | Exception


class Writer:
    def __init__(
        self,
        database: Database,
        publish: Callable[[Event], None],
        retry_seconds: float = RETRY_SECONDS,
        observer: Observer = NOBODY,
    ) -> None:
        """`publish` is given each committed event, in order, and raises nothing."""
        self._database = database
        self._observer = observer
        self._retry_seconds = retry_seconds
        self._sql = statements(database.dialect)
        self.has_owners = False
        """Whether sessions may belong to users. Until then no query looks for a session's owner."""
        self._publish = publish
        self._queue: deque[_PostedChange[Any]] = deque()
        self._newest: dict[str, _PostedChange[Any]] = {}
        """By session, the newest change that is not stored yet."""
        self._worker: asyncio.Task[None] | None = None

    def post(self, work: Work[T], session_id: str | None = None, chain: Chain | None = None) -> asyncio.Future[T]:
        """Queues a change and returns. The future is done when the change is stored and announced, with what `work` returned.
        Deltas of the session wait for it."""
        posted = _PostedChange(work, session_id, chain or Chain(), _CommitFuture(loop=asyncio.get_running_loop()))
        self._queue.append(posted)
        if session_id is not None:
            self._newest[session_id] = posted
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._write_batches(), name="writer")
        return posted.done

    async def commit(self, work: Work[T], session_id: str | None = None) -> T:
        """Stores and announces a change. A caller that is cancelled meanwhile does not undo it."""
        return await asyncio.shield(self.post(work, session_id))

    def announce(self, directory: str, event: AnnouncedEvent) -> asyncio.Future[None]:
        """Announces an event that no session's change causes."""
        announced = Event.of(event, directory)
        return self.post(lambda tx: tx.announce(announced))

    async def barrier(self) -> None:
        """Waits until everything posted so far is stored, or refused; not for what others post meanwhile."""
        await asyncio.wait({self.post(lambda tx: None)})

    def behind(self, session_id: str, publish: Callable[[], None], chain: Chain | None = None) -> None:
        """Publishes a delta: now, or after the session's newest change; never after a failed change of `chain`."""
        newest = self._newest.get(session_id)
        if newest is not None:
            newest.deltas.append((publish, chain))
        elif chain is None or chain.failure is None:
            publish()

    async def _write_batches(self) -> None:
        """Resolves the future of each change, also when it is cancelled."""
        batch: deque[_PostedChange[Any]] = deque()
        try:
            while self._queue:
                batch, self._queue = self._queue, deque()
                outcomes = await self._store(list(batch))
                for outcome in outcomes:
                    self._resolve(batch.popleft(), outcome)
        except BaseException as error:
            self._fail_unfinished(batch, error)
            raise

    def _fail_unfinished(self, batch: deque[_PostedChange[Any]], error: BaseException) -> None:
        """Changes that still wait fail. Later ones have a new worker."""
        if not isinstance(error, asyncio.CancelledError):
            log.error("the writer failed with %d changes", len(batch) + len(self._queue), exc_info=error)
        unfinished, self._queue = [*batch, *self._queue], deque()
        for posted in unfinished:
            self._resolve(posted, WriterStopped("The server stopped before it knew whether this was stored."))

    async def _store(self, batch: Sequence[_PostedChange[Any]]) -> list[Outcome]:
        """One transaction for all; if it fails, one for each in order, so that a bad change does not make others fail. While the
        database itself refuses, for at most `retry_seconds`."""
        deadline = time.monotonic() + self._retry_seconds
        ready = [posted for posted in batch if posted.chain.failure is None]
        together = await self._try_transaction(ready)
        if not isinstance(together, Exception):
            stored = iter(together)
            return [posted.chain.failure or next(stored) for posted in batch]
        outcomes = await self._store_each(batch, together, deadline, may_try=len(ready) > 1 and not may_be_committed(together))
        _log_failures([outcome for outcome in outcomes if isinstance(outcome, Exception)])
        return outcomes

    async def _store_each(
        self, batch: Sequence[_PostedChange[Any]], latest: Outcome, deadline: float, *, may_try: bool
    ) -> list[Outcome]:
        """`latest`: the outcome of the transaction with all. If nobody knows whether it was committed, none is tried again."""
        outcomes: list[Outcome] = []
        for posted in batch:
            if posted.chain.failure is not None:
                outcomes.append(posted.chain.failure)
                continue
            if may_try and (not _is_unavailable(latest) or time.monotonic() < deadline):
                alone = await self._try_transaction([posted])
                latest = alone if isinstance(alone, Exception) else alone[0]
            outcomes.append(latest)
            if isinstance(latest, Exception):
                posted.chain.failure = latest
        return outcomes

    async def _try_transaction(self, batch: Sequence[_PostedChange[Any]]) -> list[_CommittedChange] | Exception:
        if not batch:
            return []
        began = time.perf_counter()
        try:
            stored = await self._database.write(lambda connection: self._run(connection, batch))
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to who posted the change
            return error
        self._observer.committed(time.perf_counter() - began, len(batch))
        return stored

    def _resolve(self, posted: _PostedChange[Any], outcome: Outcome) -> None:
        if posted.session_id is not None and self._newest.get(posted.session_id) is posted:
            del self._newest[posted.session_id]
        if isinstance(outcome, Exception):
            posted.done.set_exception(outcome)
            posted.done.exception()  # posted changes may have no reader; the log has it
        else:
            for event in outcome.events:
                self._publish(event)
            posted.done.set_result(outcome.result)
        for publish, chain in posted.deltas:
            if chain is None or chain.failure is None:
                publish()

    def _run(self, connection: Connection, changes: Sequence[_PostedChange[Any]]) -> list[_CommittedChange]:
        """Runs in the transaction, on the writer's thread."""
        tx, stored = Tx(connection, self._sql), list[_CommittedChange]()
        for posted in changes:
            tx.events = []
            stored.append(_CommittedChange(posted.work(tx), tx.events))
        owners = self._owners(tx.connection, [event for each in stored for event in each.events])
        return self._journal(tx, stored, owners)

    def _owners(self, connection: Connection, events: Sequence[Event]) -> Mapping[str, str]:
        """The owners of the sessions with events."""
        unknown = {event.session_id for event in events if event.session_id and event.owner is None}
        return session_rows.owners(connection, unknown) if unknown and self.has_owners else {}

    def _journal(self, tx: Tx, stored: Sequence[_CommittedChange], owners: Mapping[str, str]) -> list[_CommittedChange]:
        count = sum(event.journaled for each in stored for event in each.events)
        seq = tx.execute(self._sql.advance_journal, {"count": count}).scalar_one() - count if count else 0
        numbered: list[_CommittedChange] = []
        now = clock.now_ms()
        for each in stored:
            events: list[Event] = []
            for event in each.events:
                seq += event.journaled
                events.append(event.stored(_owner(event, owners), seq if event.journaled else None))
                if event.journaled:
                    tx.put(self._sql.put_event, _journal_row(events[-1], now))
            numbered.append(_CommittedChange(each.result, events))
        tx.flush()
        return numbered


def _owner(event: Event, owners: Mapping[str, str]) -> str | None:
    if event.owner is not None or event.session_id is None:
        return event.owner
    return owners.get(event.session_id, "")


def _journal_row(event: Event, now: int) -> Row:
    payload = event.payload
    return {
        "seq": event.seq,
        "type": event.type,
        "session_id": event.session_id,
        "directory": event.directory,
        "time": now,
        "payload": payload.decode(),
        "bytes": len(payload),
        "owner": event.owner,
    }


def _log_failures(errors: Sequence[Exception]) -> None:
    """A refused change concerns only its caller; a failure of the database, or of a lease, is logged once."""
    expected = [error for error in errors if isinstance(error, StaleLease) or _is_unavailable(error)]
    if expected:
        log.error("%d changes could not be stored: %s", len(expected), expected[-1])
    for error in errors:
        if not isinstance(error, ServiceError) and error not in expected:
            log.error("a change could not be stored", exc_info=error)


def _is_unavailable(outcome: Outcome) -> bool:
    """Whether the database failed, not the change: it is locked, full or cannot be reached."""
    return isinstance(outcome, StorageError) and not isinstance(outcome, IntegrityError | DataError | StaleLease)
