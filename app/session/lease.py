"""Run leases: one row for each session that a server works on, with its owner, a generation (the fencing token) and a heartbeat.

A server is dead when its heartbeat is stale by the database's clock. Servers that share a data directory know it at once: each
holds the lock of a file there. A dead server's lease is taken over to recover the session, before anything else runs in it.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Sequence
from typing import Any

from app.schema.errors import SessionBusy
from app.storage import queries
from app.storage.engine import Connection
from app.storage.statements import Statements
from app.storage.writer import Change, Lease, Writer
from app.util.failure_log import FailureLog
from app.util.server_locks import ServerLocks

log = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
LATE_AFTER_MS = 3_000
DEAD_AFTER_MS = 6_000
TAKE_AGAIN_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 10.0
"""For the recovery of a session whose lease is late: longer than it takes a server to be dead and another to see it."""


class LateLease(SessionBusy):
    """Its owner has missed a heartbeat, or is dead and the session not recovered yet."""


class Leases:
    """All that this process holds; `owner` is made anew at each start."""

    def __init__(self, sql: Statements, writer: Writer, locks: ServerLocks | None = None) -> None:
        self._sql = sql
        self._writer = writer
        self._locks = locks
        self.owner = secrets.token_hex(16)
        self._held: dict[str, Lease] = {}
        self._recovering: dict[str, asyncio.Event] = {}
        self._beating: asyncio.Task[None] | None = None

    async def take(self, session_id: str) -> Lease:
        """Raises SessionBusy while another living server holds it. Waits until what a dead one held is recovered."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while True:
            if session_id in self._recovering:
                await self._recovering[session_id].wait()
            try:
                return await self._take_now(session_id)
            except LateLease:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(TAKE_AGAIN_SECONDS)

    def drop(self, session_id: str) -> None:
        lease = self._held.pop(session_id, None)
        if lease is not None:
            self._writer.post(Change([(self._sql.drop_lease, [_key(lease)])]))

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})

    async def _take_now(self, session_id: str) -> Lease:
        taken: list[Lease] = []
        await self._writer.commit(Change(work=lambda connection: taken.append(self._take(connection, session_id))))
        self._hold(taken[-1])
        return taken[-1]

    def _take(self, connection: Connection, session_id: str) -> Lease:
        held = queries.lease_of(connection, session_id)
        if session_id in self._recovering:
            raise LateLease(session_id)
        if held is not None and held.owner != self.owner:
            raise LateLease(session_id) if self._is_older(held, LATE_AFTER_MS) else SessionBusy(session_id)
        return self._put(connection, session_id, held.generation + 1 if held else 1)

    def _put(self, connection: Connection, session_id: str, generation: int) -> Lease:
        connection.execute(self._sql.take_lease, {"session_id": session_id, "owner": self.owner, "generation": generation})
        return Lease(session_id, self.owner, generation)

    def _hold(self, lease: Lease) -> None:
        self._held[lease.session_id] = lease
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="lease heartbeat")

    # Of dead servers.

    def dead(self, leases: Sequence[Any]) -> list[Any]:
        """Those of `queries.leases` whose servers are dead."""
        return [held for held in leases if held.owner != self.owner and self._is_older(held, DEAD_AFTER_MS)]

    async def take_over(self, dead: Sequence[Any]) -> set[str]:
        """The sessions whose leases this server has now, and no other has taken over. Until `recovered`, nothing runs in them."""
        sessions = {held.session_id for held in dead}
        for session_id in sessions:
            self._recovering.setdefault(session_id, asyncio.Event())
        taken: list[Lease] = []

        def take(connection: Connection) -> None:
            taken[:] = [
                self._put(connection, held.session_id, held.generation + 1)
                for held in dead
                if connection.execute(self._sql.drop_lease, _key(held)).rowcount
            ]

        try:
            await self._writer.commit(Change(work=take))
        except BaseException:
            self._let_run(sessions)
            raise
        for lease in taken:
            self._hold(lease)
        self._let_run(sessions - {lease.session_id for lease in taken})
        return {lease.session_id for lease in taken}

    def recovered(self, sessions: Collection[str]) -> None:
        for session_id in sessions:
            self.drop(session_id)
        self._let_run(sessions)

    def _let_run(self, sessions: Collection[str]) -> None:
        for session_id in sessions:
            self._recovering.pop(session_id).set()

    def _is_older(self, held: Any, milliseconds: int) -> bool:
        """By its heartbeat. A lock counts more: it holds while the machine sleeps, and when its clock jumps."""
        is_held = self._locks.is_held(held.owner) if self._locks else None
        return not is_held if is_held is not None else held.age > milliseconds

    # The heartbeat.

    async def _beat(self) -> None:
        failures = FailureLog(log, "writing the heartbeat of the running sessions")
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if not self._held:
                continue
            try:
                await self._writer.commit(Change(work=self._write_beat))
                failures.worked()
            except Exception as error:  # noqa: BLE001  the next one may be written
                failures.failed(error)

    def _write_beat(self, connection: Connection) -> None:
        rows = [{"lease_session": held, "lease_owner": self.owner} for held in tuple(self._held)]
        if rows:
            connection.execute(self._sql.beat_leases, rows)


def _key(lease: Any) -> dict[str, Any]:
    """Of one generation alone: the session's next lease may be taken while this one is dropped."""
    return {"lease_session": lease.session_id, "lease_owner": lease.owner, "lease_generation": lease.generation}
