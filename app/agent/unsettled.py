"""Sessions whose turn ended while nothing could be stored, as on a full disk: their record is closed once that works again."""

import asyncio
import logging

from app.agent import stored_error
from app.agent.errors import TurnFailure, to_message_error
from app.schema.message import MessagePath
from app.schema.session import Idle
from app.session.status import Statuses
from app.session.store import Store

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
REASON = "The server could not store this answer. Send a prompt to go on."


class Unsettled:
    def __init__(self, store: Store, statuses: Statuses) -> None:
        self._store = store
        self._statuses = statuses
        self._directories: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()
        self._retrying: asyncio.Task[None] | None = None

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._directories

    def add(self, session_id: str, directory: str) -> None:
        self._directories[session_id] = directory
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.create_task(self._retry(), name="settle what could not be stored")

    async def settle(self, session_id: str) -> None:
        """Before the session's next turn, too. Raises what keeps it from being stored."""
        async with self._one_at_a_time:
            if session_id in self._directories:
                await self._close_record(session_id, self._directories[session_id])
                del self._directories[session_id]

    async def close(self) -> None:
        """What is left is recovered at the next start."""
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait({self._retrying})

    async def _close_record(self, session_id: str, directory: str) -> None:
        error = to_message_error(TurnFailure(REASON))
        await stored_error.answer_with(self._store, session_id, MessagePath(cwd=directory, root=directory), error)
        await self._statuses.set(session_id, directory, Idle())

    async def _retry(self) -> None:
        while self._directories:
            await asyncio.sleep(RETRY_SECONDS)
            for session_id in list(self._directories):
                try:
                    await self.settle(session_id)
                except Exception:
                    log.exception("the end of the turn of %s can still not be stored", session_id)
