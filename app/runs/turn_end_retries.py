"""Sessions whose turn ended while nothing could be stored, as on a full disk: their record is closed once that works again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.schema.errors import NotFound, SessionBusy
from app.schema.message import MessagePath
from app.session.gate import HoldKind, SessionGate
from app.session.lease import Leases
from app.session.status import Statuses
from app.session.store import Store
from app.turn import stored_error
from app.turn.errors import TurnFailure, to_message_error
from app.util.failure_log import FailureLog

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
PROBE_SECONDS = 1.0
"""Between two looks whether a database that has refused accepts writes again."""
REASON = "The server could not store this answer. Send a prompt to go on."


class TurnEndRetries:
    """Retries when the database accepts writes again, until the record is stored or the session is deleted. What fails all the
    same is retried with a delay that doubles up to LONGEST_DELAY_SECONDS."""

    def __init__(
        self,
        store: Store,
        statuses: Statuses,
        gate: SessionGate,
        leases: Leases,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._leases = leases
        self._store = store
        self._statuses = statuses
        self._gate = gate
        self._sleep = sleep
        self._directories: dict[str, str] = {}
        self._retries: dict[str, asyncio.Task[None]] = {}
        self._probe = asyncio.Lock()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._directories

    def add(self, session_id: str, directory: str) -> None:
        self._directories[session_id] = directory
        if session_id not in self._retries:
            self._retries[session_id] = asyncio.create_task(self._retry(session_id), name=f"close {session_id}")

    def forget(self, session_id: str) -> None:
        """Of a deleted session. The caller holds it."""
        self._directories.pop(session_id, None)
        if retry := self._retries.pop(session_id, None):
            retry.cancel()

    async def store_end(self, session_id: str) -> None:
        """Close the record, before the session's next turn, too. The caller holds the session. Raises what keeps it from being
        stored."""
        if session_id in self._directories:
            await self._close_record(session_id, self._directories[session_id])
            self._directories.pop(session_id, None)
            log.warning("the end of the turn of %s is stored now, which failed before", session_id)

    async def close(self) -> None:
        """What is left is recovered at the next start."""
        retries = list(self._retries.values())
        for retry in retries:
            retry.cancel()
        if retries:
            await asyncio.wait(retries)

    async def _close_record(self, session_id: str, directory: str) -> None:
        error = to_message_error(TurnFailure(REASON))
        await stored_error.answer_with(self._store, session_id, MessagePath(cwd=directory, root=directory), error)
        await self._statuses.set_idle(session_id, directory)

    async def _retry(self, session_id: str) -> None:
        failures, delay = FailureLog(log, f"storing the end of the turn of {session_id}"), FIRST_DELAY_SECONDS
        while session_id in self._directories:
            await self._sleep(delay)
            await self._until_writable()
            await self._try(session_id, failures)
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
        del self._retries[session_id]

    async def _until_writable(self) -> None:
        """One session after the other: those that wait do not ask meanwhile."""
        async with self._probe:
            while not await self._store.accepts_writes():
                await self._sleep(PROBE_SECONDS)

    async def _try(self, session_id: str, failures: FailureLog) -> None:
        try:
            async with self._gate.hold(session_id, HoldKind.EDIT):
                self._store.hold(await self._leases.acquire(session_id))
                try:
                    await self.store_end(session_id)
                finally:
                    self._store.release(session_id)
                    self._leases.release(session_id)
        except SessionBusy:
            return  # what holds the session closes the record first
        except NotFound:
            self._directories.pop(session_id, None)
        except Exception as error:  # noqa: BLE001  whatever keeps it from being stored may pass
            failures.failed(error)
