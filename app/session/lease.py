"""Which server runs a session: a row with its owner, a generation and a heartbeat. A server that died is taken over from."""

import asyncio
import logging
from typing import Any

from app.schema.errors import Busy
from app.storage import queries
from app.storage.engine import Connection
from app.storage.statements import Statements
from app.storage.writer import Change, Lease, Writer
from app.util import clock, owner
from app.util.failure_log import FailureLog

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
DEAD_AFTER_MS = 30_000


class Leases:
    """All that this process holds; `owner` is made anew at each start."""

    def __init__(self, sql: Statements, writer: Writer) -> None:
        self._sql = sql
        self._writer = writer
        self.owner = owner.mine()
        self._held: dict[str, Lease] = {}
        self._beating: asyncio.Task[None] | None = None

    async def take(self, session_id: str) -> Lease:
        """Raises Busy while another live server holds it."""
        taken: list[Lease] = []
        await self._writer.commit(Change(work=lambda connection: taken.append(self._take(connection, session_id))))
        self._held[session_id] = taken[-1]
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="lease heartbeat")
        return taken[-1]

    async def clear_dead(self) -> None:
        """Forget the leases of servers that are gone: their sessions are nobody's."""

        def clear(connection: Connection) -> None:
            for held in queries.leases(connection):
                if is_dead(held.owner, held.heartbeat):
                    connection.execute(self._sql.drop_lease, _key(held))

        await self._writer.commit(Change(work=clear))

    def drop(self, session_id: str) -> None:
        lease = self._held.pop(session_id, None)
        if lease is not None:
            self._writer.post(Change([(self._sql.drop_lease, [_key(lease)])]))

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})

    def _take(self, connection: Connection, session_id: str) -> Lease:
        held = queries.lease_of(connection, session_id)
        now = clock.now_ms()
        if held is not None and held.owner != self.owner and not is_dead(held.owner, held.heartbeat):
            raise Busy(session_id)
        lease = Lease(session_id, self.owner, held.generation + 1 if held else 1)
        row = {"session_id": session_id, "owner": self.owner, "generation": lease.generation, "heartbeat": now}
        connection.execute(self._sql.take_lease, [row])
        return lease

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
        now = clock.now_ms()
        rows = [{"lease_session": held, "lease_owner": self.owner, "now": now} for held in tuple(self._held)]
        if rows:
            connection.execute(self._sql.beat_leases, rows)


def _key(lease: Any) -> dict[str, Any]:
    """Of one generation alone: the session's next lease may be taken while this one is dropped."""
    return {"lease_session": lease.session_id, "lease_owner": lease.owner, "lease_generation": lease.generation}


def is_dead(name: str, heartbeat: int) -> bool:
    """A server of this machine is asked after directly, another's is dead when its heart has not beaten for long."""
    gone = owner.is_gone(name)
    return gone if gone is not None else clock.now_ms() - heartbeat > DEAD_AFTER_MS
