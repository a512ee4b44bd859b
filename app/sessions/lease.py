"""Run leases: a row for each session that a server works on or has worked on, with its owner (empty when no server works on it),
a generation (the fencing token, which only grows) and a heartbeat.

A server is dead when its heartbeat is stale by the database's clock. Servers that share a data directory know it at once, because
each holds the lock of a file there. A dead server's lease is taken over to recover the session, before anything else runs in it.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.record.engine import Connection, Database
from app.record.repositories import work_rows
from app.record.statements import statements
from app.record.writer import Lease, Tx, Writer
from app.schema.errors import NotFound, SessionBusy, SessionNotFound
from app.schema.session import Busy
from app.util.data_files import ServerLocks
from app.util.tasks import FailureLog, LoopHeartbeat

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
CONFIRMED_WITHIN_SECONDS = 4.0
"""A server whose heartbeat was not written for longer stops its turns, because another server may soon take them over."""
LATE_AFTER_MS = 3_000
DEAD_AFTER_MS = 6_000
ACQUIRE_RETRY_SECONDS = 0.25
POLL_SECONDS = 0.5
"""The time between two looks whether another server wants a run to end, or has ended one."""
ACQUIRE_TIMEOUT_SECONDS = 10.0
"""How long to wait for the recovery of a session with a late lease: longer than a server takes to be declared dead."""


_BUSY = Busy().wire_json().decode()


class LateLease(SessionBusy):
    """The lease's owner missed a heartbeat, or is dead and its session not recovered yet."""


class PromptsKeptOut(SessionBusy):
    """Another server reverts or deletes in the session, or a killed one has left a revert unfinished, or the like: no prompt is
    stored until that is done, or undone."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """`takeovers`: how many servers in a row died with the same run. `seconds`: since the last one's heartbeat."""

    takeovers: int
    seconds: float


class Leases:
    """The leases of this process. `owner` is a new random name at each start."""

    def __init__(self, database: Database, writer: Writer, locks: ServerLocks | None = None) -> None:
        self._database = database
        self._sql = statements(database.dialect)
        self._writer = writer
        self._locks = locks
        self.must_confirm = locks is None
        """Whether other servers judge by heartbeats alone that this one is alive."""
        self.owner = secrets.token_hex(16)
        self._held: dict[str, Lease] = {}
        self._abandoned: dict[str, Lease] = {}
        """Leases that were given up in the middle of a run: the session is recovered before it runs here again."""
        self._unreleased: list[tuple[Lease, Any]] = []
        """Released leases whose rows could not be written, with the statements: each heartbeat tries again."""
        self._confirmed = -math.inf
        """When the newest stored heartbeat was begun."""
        self._was_late = False
        """Whether a heartbeat came so late that another server may have taken the sessions over meanwhile."""
        self.on_heartbeat: Callable[[Connection], None] | None = None
        """Called in the transaction of each heartbeat, in a thread of the database."""
        self._heartbeat_while_idle = False
        self._recovering: dict[str, asyncio.Event] = {}
        self._heartbeat: LoopHeartbeat | None = None
        self._failures = FailureLog(log, "writing the heartbeat of the running sessions")

    async def acquire(self, session_id: str, busy_in: str | None = None, *, wait: bool = False) -> Lease:
        """Waits until a dead server's session is recovered. While another living server holds the lease, raises SessionBusy, or
        waits if `wait`. `busy_in`: the directory in which other servers show the session as busy meanwhile. Raises NotFound."""
        deadline = time.monotonic() + ACQUIRE_TIMEOUT_SECONDS
        while True:
            if session_id in self._recovering:
                await self._recovering[session_id].wait()
            try:
                return await self._acquire_now(session_id, busy_in)
            except SessionBusy as busy:
                if not wait and (not isinstance(busy, LateLease) or time.monotonic() > deadline):
                    raise
                await asyncio.sleep(ACQUIRE_RETRY_SECONDS)

    def release(self, session_id: str, with_change: asyncio.Future[Any] | None = None) -> None:
        """`with_change`: the write of a change that releases the lease too."""
        lease = self._held.pop(session_id, None)
        if lease is None:
            return
        if with_change is None:
            self._post_release(lease)
        else:
            with_change.add_done_callback(lambda stored: self._post_release(lease) if stored.exception() else None)

    def _post_release(self, lease: Lease, statement: Any = None) -> asyncio.Future[Any]:
        release = self._sql.release_lease if statement is None else statement
        freed = self._writer.post(lambda tx: tx.execute(release, lease.key()))
        freed.add_done_callback(lambda _: self._unreleased.append((lease, release)) if freed.exception() else None)
        return freed

    def held(self, session_id: str) -> Lease | None:
        return self._held.get(session_id)

    def abandon(self, session_id: str) -> Lease:
        """Without a write: the lease becomes stale, and the server that takes it over goes on from what is stored. Returns a
        lease that refuses every write."""
        if (lease := self._held.pop(session_id, None)) is not None:
            self._abandoned[session_id] = lease
        return Lease(session_id, self.owner, generation=-1)

    def require_free(self, connection: Connection, session_id: str) -> None:
        """For the transaction of a change that must not meet a run. Raises SessionBusy while another server holds the lease."""
        if self._held_elsewhere(connection, session_id) is not None:
            raise SessionBusy(session_id)

    def require_admission(self, connection: Connection, session_id: str, *, needs_idle: bool) -> None:
        """For the transaction that stores a prompt. While another living server holds the lease, raises PromptsKeptOut if that
        shows no status, as of a revert, or a deletion; SessionBusy if the prompt needs the session idle."""
        held = self._held_elsewhere(connection, session_id)
        if held is None or not self.is_alive(held.owner, held.age):
            return
        if held.status is None:
            raise PromptsKeptOut(session_id)
        if needs_idle:
            raise SessionBusy(session_id)

    def _held_elsewhere(self, connection: Connection, session_id: str) -> Any:
        """The row of the lease that another server has; None if none has it."""
        held = work_rows.lease_of(connection, session_id)
        return held if held is not None and held.owner not in ("", self.owner) else None

    # Requests between servers.

    async def request_abort(self, session_id: str) -> None:
        """Returns when another server's run of the session is over; at once if there is none, its server is dead, or this one
        recovers it: then the server that goes on with the run ends it."""

        def ask(tx: Tx) -> int | None:
            held = work_rows.lease_of(tx.connection, session_id)
            if held is None or held.owner == "" or (held.owner == self.owner and session_id not in self._recovering):
                return None
            lease = Lease(session_id, held.owner, held.generation)
            tx.execute(tx.sql.abort_run, {**lease.key(), "wanted": True})
            return lease.generation

        generation = await self._writer.commit(ask) if await self.is_left_to_others(session_id) else None
        if generation is not None:
            await self.free_elsewhere(session_id, generation)

    async def free_elsewhere(self, session_id: str, generation: int | None = None) -> None:
        """Returns when no other living server holds the lease, or at least not in this generation."""
        while True:
            if not await self.is_held_elsewhere(session_id, generation):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def is_held_elsewhere(self, session_id: str, generation: int | None = None) -> bool:
        held = await self._database.read(partial(self._held_elsewhere, session_id=session_id))
        return held is not None and generation in (None, held.generation) and self.is_alive(held.owner, held.age)

    async def is_left_to_others(self, session_id: str) -> bool:
        """Whether another server runs the session, or died in a run that is not recovered here yet."""
        if session_id in self._recovering:
            return True
        return await self._database.read(partial(self._held_elsewhere, session_id=session_id)) is not None

    async def aborted_runs(self) -> list[str]:
        """Sessions held here whose run another server wants to end."""
        rows = await self._database.read(work_rows.leases) if self._held else ()
        aborting = [Lease(row.session_id, row.owner, row.generation) for row in rows if row.aborting]
        return [lease.session_id for lease in aborting if self._held.get(lease.session_id) == lease]

    def note_aborted(self, session_id: str) -> None:
        """What runs is told to end: what joins or follows it from now on is not meant."""
        done = {**self._held[session_id].key(), "wanted": False}
        self._writer.post(lambda tx: tx.execute(tx.sql.abort_run, done))

    def is_unconfirmed(self) -> bool:
        """Whether no heartbeat could be written for so long that another server may soon take the sessions over."""
        was_late, self._was_late = self._was_late, False
        is_late = was_late or self.heartbeat_age() > CONFIRMED_WITHIN_SECONDS
        return bool(self._held) and self._locks is None and is_late

    async def hand_over(self, abandoned: Sequence[Lease]) -> None:
        """The next server that looks takes the sessions over, as a dead server's; this counts as no takeover."""
        rows = [{**lease.key(), "stale_ms": 2 * DEAD_AFTER_MS} for lease in abandoned]
        if rows:
            await self._writer.commit(lambda tx: tx.execute(self._sql.hand_over_lease, rows))

    async def offer(self, sessions: Sequence[str]) -> None:
        """Has sessions that no server holds recovered as a dead server's, by the server that looks first. Waits for nobody: a
        session that another server has offered, or runs, meanwhile is left to that one. Does nothing on SQLite, whose only server
        closes its sessions itself."""
        for session_id in sessions if self._locks is None else ():
            with suppress(SessionBusy, NotFound):
                lease = await self._acquire_now(session_id, None)
                self.abandon(session_id)
                await self.hand_over([lease])

    async def close(self) -> None:
        if self._heartbeat is not None:
            await asyncio.to_thread(self._heartbeat.close)

    async def _acquire_now(self, session_id: str, busy_in: str | None) -> Lease:
        """A lease that is stored although the caller was cancelled is released, unless this server held it before."""
        was_held, is_wanted = session_id in self._held, True
        stored = self._writer.post(lambda tx: self._acquire(tx.connection, session_id, busy_in))

        def finish(_: object) -> None:
            if stored.exception() is not None or (was_held and not is_wanted):
                return
            if is_wanted:
                self.keep(stored.result())
            else:
                self._post_release(stored.result())  # never held: the next server that acquires it gets the next generation

        stored.add_done_callback(finish)
        try:
            return await asyncio.shield(stored)
        except asyncio.CancelledError:
            is_wanted = False
            is_stored = not was_held and stored.done() and stored.exception() is None
            if is_stored and self._held.get(session_id) is stored.result():
                self.release(session_id)
            raise

    def acquire_free(self, connection: Connection, session_id: str, busy_in: str) -> Lease | None:
        """Acquires the lease in the transaction of another change, if no server has it; to be kept when that change is stored."""
        return None if session_id in self._held or session_id in self._recovering else self._next(connection, session_id, busy_in)

    def _acquire(self, connection: Connection, session_id: str, busy_in: str | None) -> Lease:
        if session_id in self._recovering:
            raise LateLease(session_id)
        lease = self._next(connection, session_id, busy_in)
        if lease is not None:
            return lease
        held = work_rows.lease_of(connection, session_id)
        if held is None:
            raise SessionNotFound(session_id)
        is_late = held.owner == self.owner or not self.is_alive(held.owner, held.age, LATE_AFTER_MS)
        raise LateLease(session_id) if is_late else SessionBusy(session_id)

    def _next(self, connection: Connection, session_id: str, busy_in: str | None) -> Lease | None:
        """The next generation, or the lease that this server holds: a request that keeps others out may start a run. None while
        another server has it, and for an unknown session."""
        mine, abandoned = self._held.get(session_id), self._abandoned.get(session_id)
        if abandoned is not None:
            left = work_rows.lease_of(connection, session_id)
            if left is not None and (left.owner, left.generation) == (abandoned.owner, abandoned.generation):
                return None
        row = {
            "session_id": session_id,
            "owner": self.owner,
            "held_generation": mine.generation if mine else 0,
            "directory": busy_in,
            "status": _BUSY if busy_in is not None else None,
        }
        generation = connection.execute(self._sql.acquire_lease, row).scalar_one_or_none()
        return None if generation is None else Lease(session_id, self.owner, generation)

    def keep(self, lease: Lease) -> None:
        """From now on the lease is this server's, with a heartbeat, until it is released."""
        if not self._held:
            self._confirmed, self._was_late = time.monotonic(), False
        self._held[lease.session_id] = lease
        self._abandoned.pop(lease.session_id, None)
        self._start_heartbeat()

    # Takeover.

    def find_dead(self, leases: Sequence[Any]) -> list[Any]:
        """Those of the rows of `work_rows.leases` whose servers are dead, and those that this server has abandoned."""
        return [held for held in leases if held.session_id not in self._held and not self.is_alive(held.owner, held.age)]

    async def take_over(self, dead: Sequence[Any]) -> dict[str, Interruption]:
        """Takes over leases of `dead`; returns the sessions that no other server took over first. Nothing runs in them until
        `mark_recovered`."""
        sessions = {held.session_id for held in dead}
        for session_id in sessions:
            self._recovering.setdefault(session_id, asyncio.Event())

        def take(tx: Tx) -> dict[str, Interruption]:
            acquired: dict[str, Interruption] = {}
            for held in dead:
                row = {**Lease(held.session_id, held.owner, held.generation).key(), "new_owner": self.owner}
                takeovers = tx.execute(self._sql.take_over_lease, row).scalar_one_or_none()
                if takeovers is not None:
                    acquired[held.session_id] = Interruption(takeovers, held.age / 1000)
            return acquired

        try:
            acquired = await self._writer.commit(take)
        except BaseException:
            self._unblock(sessions)
            raise
        for held in dead:
            if held.session_id in acquired:
                self.keep(Lease(held.session_id, self.owner, held.generation + 1))
        self._unblock(sessions - acquired.keys())
        return acquired

    async def mark_recovered(self, sessions: Collection[str], going_on: Collection[str] = ()) -> None:
        """Returns when the leases are free, so that later requests find them free. Leases of sessions that are `going_on` here
        are left to their runs: another server that waits for one would find a turn in its middle. The count of their takeovers is
        forgotten when their next run ends."""
        leases = [self._held.pop(each) for each in set(sessions).difference(going_on) if each in self._held]
        freed = [self._post_release(lease, self._sql.release_recovered_lease) for lease in leases]
        self._unblock(sessions)
        if freed:
            await asyncio.wait(freed)

    def _unblock(self, sessions: Collection[str]) -> None:
        for session_id in sessions:
            self._recovering.pop(session_id).set()

    def is_alive(self, server: str, heartbeat_age: int, most: int = DEAD_AFTER_MS) -> bool:
        """Decides by the server's lock file if there is one, else by the heartbeat. A lock survives a suspended machine and a
        clock that jumps, and a server on SQLite writes no heartbeat while it is idle. Ages are in milliseconds."""
        is_locked = self._locks.is_held(server) if self._locks else None
        return is_locked if is_locked is not None else heartbeat_age <= most

    # The heartbeat.

    async def write_heartbeat(self) -> None:
        """Raises StorageError."""
        began = time.monotonic()
        await self._writer.commit(lambda tx: self._renew_leases(tx.connection))
        self._confirmed = began

    def heartbeat_while_idle(self) -> None:
        """From now on the heartbeat is written while no session runs too."""
        self._heartbeat_while_idle = True
        self._start_heartbeat()

    def heartbeat_age(self) -> float:
        """Seconds since the newest stored heartbeat was begun."""
        return time.monotonic() - self._confirmed

    def _start_heartbeat(self) -> None:
        if self._heartbeat is None:
            self._heartbeat = LoopHeartbeat("lease heartbeat", HEARTBEAT_SECONDS, self._beat, self._release_again)

    def _beat(self) -> None:
        """Runs in the heartbeat's thread. Does not queue with the writer, which the loop works on and others may hold up."""
        if not self._held and not self._heartbeat_while_idle:
            return
        began = time.monotonic()
        self._was_late |= began - self._confirmed > CONFIRMED_WITHIN_SECONDS
        try:
            self._database.write_heartbeat(self._renew_leases)
            self._confirmed = began
            self._failures.worked()
        except Exception as error:  # noqa: BLE001  the next one may be written
            self._failures.failed(error)

    def _release_again(self) -> None:
        unreleased, self._unreleased = self._unreleased, []
        for lease, statement in unreleased:
            self._post_release(lease, statement)

    def _renew_leases(self, connection: Connection) -> None:
        if self.on_heartbeat:
            self.on_heartbeat(connection)
        rows = [{"lease_session": held, "lease_owner": self.owner} for held in tuple(self._held)]
        if rows:
            connection.execute(self._sql.renew_leases, rows)
