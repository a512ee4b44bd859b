"""Sessions whose turn ended while nothing could be stored, as on a full disk: their record is closed once that works again."""

import asyncio
import logging

from app.schema.errors import NotFound, SessionBusy
from app.schema.message import MessagePath
from app.session.live import LiveSession, LiveSessions
from app.turn import stored_error
from app.turn.errors import TurnFailure, to_message_error
from app.util.tasks import FailureLog

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
PROBE_SECONDS = 1.0
"""Between two looks whether a database that has refused accepts writes again."""
REASON = "The server could not store this answer. Send a prompt to go on."


class UnstoredEnds:
    """Each is tried again when the database accepts writes, until it is stored or its session is deleted. What fails all the same
    is tried again with a delay that doubles up to LONGEST_DELAY_SECONDS."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._store = sessions.store
        self._leases = sessions.leases
        self._probe = asyncio.Lock()

    def store_later(self, live: LiveSession, directory: str) -> None:
        live.unstored_end = directory
        if live.closing is None:
            live.closing = asyncio.create_task(self._retry(live), name=f"close {live.id}")

    async def store(self, live: LiveSession) -> None:
        """Close the record, before the session's next turn, too. The caller works on the session. Raises what keeps it from being
        stored."""
        directory = live.unstored_end
        if directory is None:
            return
        error = to_message_error(TurnFailure(REASON))
        await stored_error.answer_with(self._store, live.id, MessagePath(cwd=directory, root=directory), error)
        await live.set_idle(directory)
        live.unstored_end = None
        log.warning("the end of the turn of %s is stored now, which failed before", live.id)

    async def _retry(self, live: LiveSession) -> None:
        failures, delay = FailureLog(log, f"storing the end of the turn of {live.id}"), FIRST_DELAY_SECONDS
        try:
            while live.unstored_end is not None:
                await asyncio.sleep(delay)
                await self._until_writable()
                await self._try(live, failures)
                delay = min(2 * delay, LONGEST_DELAY_SECONDS)
        finally:
            live.closing = None
            live.forget_if_idle()

    async def _until_writable(self) -> None:
        """One session after the other: those that wait do not ask meanwhile."""
        async with self._probe:
            is_writable = await self._store.accepts_writes()
            while not is_writable:
                await asyncio.sleep(PROBE_SECONDS)
                is_writable = await self._store.accepts_writes()

    async def _try(self, live: LiveSession, failures: FailureLog) -> None:
        try:
            async with live.editing():
                self._store.hold(await self._leases.acquire(live.id))
                try:
                    await self.store(live)
                finally:
                    self._store.release(live.id)
                    self._leases.release(live.id)
        except SessionBusy:
            return  # what works on the session closes the record first
        except NotFound:
            live.unstored_end = None
        except Exception as error:  # noqa: BLE001  whatever keeps it from being stored may pass
            failures.failed(error)
