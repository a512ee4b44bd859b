"""Which server runs a session: a row with its owner, a generation and a heartbeat. A server that died is taken over from."""

import asyncio
import logging
import secrets

from app.schema.errors import Busy
from app.storage import queries
from app.storage.engine import Connection
from app.storage.queries import Statements
from app.storage.writer import Change, Lease, Writer
from app.util import clock

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0


class Leases:
    """All that this process holds; `owner` is made anew at each start."""

    def __init__(self, sql: Statements, writer: Writer) -> None:
        self._sql = sql
        self._writer = writer
        self.owner = secrets.token_hex(8)
        self._held: set[str] = set()
        self._beating: asyncio.Task[None] | None = None

    async def take(self, session_id: str) -> Lease:
        """Raises Busy while another live server holds it."""
        taken: list[Lease] = []
        await self._writer.commit(Change(work=lambda connection: taken.append(self._take(connection, session_id))))
        self._held.add(session_id)
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="lease heartbeat")
        return taken[-1]

    def drop(self, session_id: str) -> None:
        self._held.discard(session_id)
        row = {"lease_session": session_id, "lease_owner": self.owner}
        self._writer.post(Change([(self._sql.drop_lease, [row])]))

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait({self._beating})

    def _take(self, connection: Connection, session_id: str) -> Lease:
        held = queries.lease_of(connection, session_id)
        now = clock.now_ms()
        if held is not None and held.owner != self.owner and now - held.heartbeat < queries.LEASE_DEAD_AFTER_MS:
            raise Busy(session_id)
        lease = Lease(session_id, self.owner, held.generation + 1 if held else 1)
        row = {"session_id": session_id, "owner": self.owner, "generation": lease.generation, "heartbeat": now}
        connection.execute(self._sql.take_lease, [row])
        return lease

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if not self._held:
                continue
            try:
                await self._writer.commit(Change(work=self._write_beat))
            except Exception:
                log.exception("the heartbeat of %d running sessions could not be written", len(self._held))

    def _write_beat(self, connection: Connection) -> None:
        now = clock.now_ms()
        rows = [{"lease_session": held, "lease_owner": self.owner, "now": now} for held in tuple(self._held)]
        if rows:
            connection.execute(self._sql.beat_leases, rows)
