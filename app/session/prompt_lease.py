"""The lease of a turn, acquired in the commit of its prompt: the turn needs no transaction of its own for it."""

import asyncio

from app.session.change import SessionChange
from app.session.lease import Leases, LeaseStatus
from app.session.store import Store
from app.storage.engine import Connection
from app.storage.writer import Lease


class PromptLease:
    """`lease`: None where the session was not free, or the prompt is not stored."""

    def __init__(self, leases: Leases, session_id: str, status: LeaseStatus) -> None:
        self._leases = leases
        self._session_id = session_id
        self._status = status
        self._acquired: Lease | None = None
        self._is_wanted = True
        self.lease: Lease | None = None

    async def acquire_with(self, prompt: SessionChange, store: Store) -> None:
        """Commits the prompt."""
        prompt.change.beforehand = self._acquire
        stored = store.post(prompt)
        stored.add_done_callback(self._settle)
        await asyncio.shield(stored)

    def _acquire(self, connection: Connection) -> None:
        self._acquired = self._leases.acquire_free(connection, self._session_id, self._status)

    def _settle(self, stored: asyncio.Future[None]) -> None:
        if self._acquired is None or stored.exception() is not None:
            return
        self.lease = self._acquired
        self._leases.keep(self.lease)
        if not self._is_wanted:
            self.give_back()

    def give_back(self) -> None:
        """No run begins with it. The prompt may still be on its way."""
        self._is_wanted = False
        if self.lease is not None and self._leases.held(self._session_id) is self.lease:
            self._leases.release(self._session_id)
