"""Grouped commits: while one transaction is on its way to the disk, the changes that arrive wait and go together in the next.

What a change announces is handed over after its commit, in the order of posting. Rows of one table are inserted in the order of
posting, which is the order of the events. The changes of a `Chain` are stored without a gap.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.sql.base import Executable

from app.bus.base import Event
from app.schema.errors import ServiceError
from app.schema.event import AnnouncedEvent
from app.storage.engine import Database, StorageError
from app.storage.reconnecting import may_be_committed
from app.storage.repositories import session_rows
from app.storage.statements import Statements
from app.telemetry.observer import NOBODY, Observer
from app.util import clock

log = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
Writes = Sequence[tuple[Executable, Rows]]

RETRY_SECONDS = 15.0
"""How long the changes of a batch that failed are tried one by one while the database refuses them, measured from the start of
the batch. Each of them may wait as long as a lock is waited for, and everything else waits behind them."""


class WriterStopped(StorageError):
    """The writer was cancelled before it knew whether the change was stored."""


class StaleLease(StorageError):
    """Another server has taken the session over; this one's turn must stop writing."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Of an abandoned one the generation is negative, so that every write is refused."""

    session_id: str
    owner: str
    generation: int

    @property
    def is_abandoned(self) -> bool:
        return self.generation < 0


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Shows a session as the transaction of its change has stored it, together with what else was written in that: `show` makes
    the event of its JSON. Where nothing of the session was stored there is no event."""

    session_id: str
    show: Callable[[bytes], Event]
    journaled = True


@dataclass(eq=False, slots=True)
class Chain:
    """Changes that need each other, as a message and its parts do: after one that fails, those behind it fail as it did, and no
    delta of theirs is published."""

    failure: Exception | None = None


@dataclass(slots=True)
class Change:
    """What is written together and what is announced of it.

    `work` runs before the rest of the change and sees what was posted earlier. It may raise to refuse the change, or leave out
    some of `events`; it may run more than once. `beforehand` does the same, but does not see what was posted just before: such
    changes are written together. `events_after`: what is announced of what the database itself has written of it, behind
    `events`. `lease`: refused if that generation no longer holds the session; `releases_lease`: nobody holds it from then on.
    Deltas of a session wait for what announces something of it, and for a change that is `ahead_of_deltas_of` it.
    """

    writes: list[tuple[Executable, Rows]] = field(default_factory=list)
    events: list[Event | SessionEvent] = field(default_factory=list)
    lease: Lease | None = None
    releases_lease: bool = False
    work: Callable[[Connection], None] | None = None
    beforehand: Callable[[Connection], None] | None = None
    events_after: Callable[[Connection], list[Event]] | None = None
    ahead_of_deltas_of: str | None = None
    chain: Chain | None = None

    def failure(self) -> Exception | None:
        """Why it cannot be stored, of one behind a failed change of its chain."""
        return self.chain.failure if self.chain else None

    def sessions(self) -> tuple[str, ...]:
        """Those whose deltas wait for it."""
        announced = {event.session_id for event in self.events}
        return tuple(session for session in announced | {self.ahead_of_deltas_of} if session)


class Announcer(Protocol):
    """Is told of each change when it is posted and, in the same order, how it went. Raises nothing."""

    def expect(self, sessions: Iterable[str]) -> None:
        """A change that concerns these sessions was posted."""

    def announce(self, sessions: Iterable[str], events: Sequence[Event]) -> None:
        """It is committed; these are its events."""

    def withdraw(self, sessions: Iterable[str]) -> None:
        """It was not stored."""


class _CommitFuture(asyncio.Future[None]):
    """Is not cancelled with a task that awaits it: others wait for it too, and the change is stored or refused all the same. The
    task is cancelled when that is known."""

    def cancel(self, msg: object = None) -> bool:
        return False


@dataclass(slots=True)
class _PostedChange:
    change: Change
    done: asyncio.Future[None]
    sessions: tuple[str, ...]


Outcome = list[Event] | Exception
"""Of a change: its events with their sequence, or what went wrong."""

Outcomes = dict[int, Outcome]
"""By the identity of the change."""


class Writer:
    def __init__(
        self,
        database: Database,
        statements: Statements,
        announcer: Announcer,
        retry_seconds: float = RETRY_SECONDS,
        observer: Observer = NOBODY,
    ) -> None:
        self._database = database
        self._observer = observer
        self._retry_seconds = retry_seconds
        self._sql = statements
        self.has_owners = False
        """Whether sessions may belong to users. Until then nobody asks the database whose a session is."""
        self._announcer = announcer
        self._queue: deque[_PostedChange] = deque()
        self._newest: asyncio.Future[None] | None = None
        """Of the change that was posted last."""
        self._worker: asyncio.Task[None] | None = None

    def post(self, change: Change) -> asyncio.Future[None]:
        """Put a change in line and return; the future is done when it is stored and announced."""
        done = self._newest = _CommitFuture(loop=asyncio.get_running_loop())
        sessions = change.sessions()
        self._announcer.expect(sessions)
        self._queue.append(_PostedChange(change, done, sessions))
        self._start_worker()
        return done

    def announce(self, directory: str, event: AnnouncedEvent) -> asyncio.Future[None]:
        """Of what no session changes."""
        return self.post(Change(events=[Event.of(event, directory)]))

    async def commit(self, change: Change) -> None:
        """Store and announce a change. A caller that is cancelled meanwhile does not undo it."""
        await asyncio.shield(self.post(change))

    async def drain(self) -> None:
        """Wait until everything posted so far is stored, or refused; not for what others post meanwhile."""
        if self._newest is not None:
            await asyncio.wait({self._newest})  # changes are done in the order of posting

    def _start_worker(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._write_batches(), name="writer")

    async def _write_batches(self) -> None:
        """Resolves the future of each change, also when it is cancelled."""
        batch: deque[_PostedChange] = deque()
        try:
            while self._queue:
                batch, self._queue = self._queue, deque()
                outcomes = await self._store([waiting.change for waiting in batch])
                while batch:
                    waiting = batch.popleft()
                    self._resolve(waiting, outcomes[id(waiting.change)])
        except BaseException as error:
            self._fail_unfinished(batch, error)
            raise

    def _fail_unfinished(self, batch: deque[_PostedChange], error: BaseException) -> None:
        """What still waits fails. What is posted from now on has a new worker."""
        if not isinstance(error, asyncio.CancelledError):
            log.error("the writer failed with %d changes", len(batch) + len(self._queue), exc_info=error)
        unfinished, self._queue = [*batch, *self._queue], deque()
        stopped = WriterStopped("The server stopped before it knew whether this was stored.")
        for waiting in unfinished:
            self._resolve(waiting, stopped)

    async def _store(self, changes: list[Change]) -> Outcomes:
        """One transaction for all; when it fails, one for each in their order, so that a bad change takes no other down. While
        the database itself refuses, only for `retry_seconds`."""
        deadline = time.monotonic() + self._retry_seconds
        ready = [change for change in changes if change.failure() is None]
        together = await self._try_transaction(ready)
        if isinstance(together, Exception):
            outcomes = await self._store_each(ready, together, deadline)
            _log_failures([outcome for outcome in outcomes.values() if isinstance(outcome, Exception)])
        else:
            outcomes = dict(zip(map(id, ready), together, strict=True))
        return outcomes | {
            id(change): failure for change in changes if (failure := change.failure()) and id(change) not in outcomes
        }

    async def _store_each(self, changes: list[Change], latest: Outcome, deadline: float) -> Outcomes:
        """`latest`: how it went for all of them together. Where nobody knows whether that is stored, none is tried again."""
        outcomes: Outcomes = {}
        may_try = len(changes) > 1 and not (isinstance(latest, Exception) and may_be_committed(latest))
        for change in changes:
            if change.failure() is not None:
                continue
            if may_try and (not _is_unavailable(latest) or time.monotonic() < deadline):
                alone = await self._try_transaction([change])
                latest = alone if isinstance(alone, Exception) else alone[0]
            outcomes[id(change)] = latest
            if change.chain and isinstance(latest, Exception):
                change.chain.failure = latest
        return outcomes

    async def _try_transaction(self, changes: list[Change]) -> list[list[Event]] | Exception:
        """In one transaction: the events of each change with their sequence, or what went wrong."""
        if not changes:
            return []
        began = time.perf_counter()
        try:
            stored = await self._database.write(lambda connection: self._apply(connection, changes))
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to who posted the change
            return error
        self._observer.committed(time.perf_counter() - began, len(changes))
        return stored

    def _resolve(self, waiting: _PostedChange, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self._announcer.withdraw(waiting.sessions)
            _fail(waiting.done, outcome)
            return
        self._announcer.announce(waiting.sessions, outcome)
        if not waiting.done.done():
            waiting.done.set_result(None)

    def _apply(self, connection: Connection, changes: list[Change]) -> list[list[Event]]:
        owners = self._owners(connection, [change.events for change in changes], {})
        sessions: dict[str, bytes] = {}
        for group in _split_at_work(changes):
            if group[0].work:
                group[0].work(connection)
            self._check_leases(connection, group)
            for before_writes in (change.beforehand for change in group if change.beforehand):
                before_writes(connection)
            for statement, rows in _grouped(group, self._sql.rank):
                if id(statement) in self._sql.showing_sessions:
                    sessions |= _stored_sessions(connection, statement, rows)
                else:
                    connection.execute(statement, rows)
        announced = [_shown(change.events, sessions) + _written(connection, change) for change in changes]
        return self._journal(connection, announced, self._owners(connection, announced, owners))

    def _owners(
        self, connection: Connection, announced: Iterable[Iterable[Event | SessionEvent]], known: dict[str, str]
    ) -> dict[str, str]:
        """Whose sessions something is announced of. Looked up before the writes for sessions that are deleted, and after
        them for new ones."""
        if not self.has_owners:
            return known
        unknown = {event.session_id for events in announced for event in events if event.session_id} - known.keys()
        return known | session_rows.owners(connection, unknown) if unknown else known

    def _check_leases(self, connection: Connection, changes: list[Change]) -> None:
        """Each once, however many changes are made under it, or released: that finds the same row."""
        released = {change.lease for change in changes if change.lease and change.releases_lease}
        held = {change.lease for change in changes if change.lease} - released
        for statement, leases in ((self._sql.check_lease, held), (self._sql.release_lease, released)):
            rows = [
                {"lease_session": lease.session_id, "lease_owner": lease.owner, "lease_generation": lease.generation}
                for lease in leases
            ]
            if rows and connection.execute(statement, rows).rowcount != len(rows):
                raise StaleLease(f"another server runs {' or '.join(lease.session_id for lease in leases)} now")

    def _journal(self, connection: Connection, changes: list[list[Event]], owners: Mapping[str, str]) -> list[list[Event]]:
        """Of the events of each change."""
        count = sum(event.journaled for change in changes for event in change)
        if not count:
            return [[_stored(event, owners, None) for event in change] for change in changes]
        seq = connection.execute(self._sql.advance_journal, {"count": count}).scalar_one() - count
        rows: list[dict[str, Any]] = []
        now = clock.now_ms()
        numbered: list[list[Event]] = []
        for change in changes:
            events: list[Event] = []
            for event in change:
                seq += event.journaled
                events.append(_stored(event, owners, seq if event.journaled else None))
            rows.extend(_journal_row(event, now) for event in events if event.journaled)
            numbered.append(events)
        connection.execute(self._sql.put_events, rows)
        return numbered


def _stored_sessions(connection: Connection, statement: Executable, rows: Rows) -> dict[str, bytes]:
    """The JSON of the sessions that a statement has written, by id. Row by row: PostgreSQL writes no row twice in a statement."""
    written = [connection.execute(statement, row).one_or_none() for row in rows]
    return {row.id: shown for row in written if row is not None and (shown := session_rows.session_json(row)) is not None}


def _shown(events: Sequence[Event | SessionEvent], sessions: Mapping[str, bytes]) -> list[Event]:
    shown = []
    for event in events:
        if isinstance(event, Event):
            shown.append(event)
        elif event.session_id in sessions:
            shown.append(event.show(sessions[event.session_id]))
    return shown


def _written(connection: Connection, change: Change) -> list[Event]:
    return change.events_after(connection) if change.events_after else []


def _stored(event: Event, owners: Mapping[str, str], seq: int | None) -> Event:
    """An event may name its owner, where a session changes hands."""
    if event.owner is not None or event.session_id is None:
        return event.stored(event.owner, seq)
    return event.stored(owners.get(event.session_id, ""), seq)


def _journal_row(event: Event, now: int) -> dict[str, Any]:
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


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # posted changes may have no reader; the log has told it


def _log_failures(errors: Sequence[Exception]) -> None:
    """A refusal is for who posted the change alone; what is wrong with the database, or with a lease, is said once."""
    expected = [error for error in errors if isinstance(error, StaleLease) or _is_unavailable(error)]
    if expected:
        log.error("%d changes could not be stored: %s", len(expected), expected[-1])
    for error in errors:
        if not isinstance(error, ServiceError) and error not in expected:
            log.error("a change could not be stored", exc_info=error)


def _is_unavailable(outcome: Outcome) -> bool:
    """The database failed, not the change: it is locked, full or cannot be reached."""
    return isinstance(outcome, StorageError) and not isinstance(outcome, IntegrityError | DataError | StaleLease)


def _split_at_work(changes: list[Change]) -> list[list[Change]]:
    """Each list but the first begins with a change that has `work`, and no other change in it has any."""
    groups: list[list[Change]] = []
    for change in changes:
        if change.work or not groups:
            groups.append([])
        groups[-1].append(change)
    return groups


def _grouped(changes: list[Change], rank: Mapping[int, int]) -> list[tuple[Executable, Rows]]:
    """Rows of one statement go together in one execution, in the order of `rank`; a statement without one stays in its place."""
    ordered: list[tuple[Executable, Rows]] = []
    together: dict[int, tuple[Executable, list[Mapping[str, Any]]]] = {}

    def close() -> None:
        ordered.extend(sorted(together.values(), key=lambda group: rank[id(group[0])]))
        together.clear()

    for change in changes:
        for statement, rows in change.writes:
            if id(statement) in rank:
                together.setdefault(id(statement), (statement, []))[1].extend(rows)
            else:
                close()
                ordered.append((statement, rows))
    close()
    return ordered
