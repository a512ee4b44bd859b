"""The lease of a turn, acquired in the commit of its prompt: the turn needs no transaction of its own for it."""

from app.session.lease import Leases, LeaseStatus
from app.session.session_tx import SessionTx
from app.storage.writer import Lease


class PromptLease:
    """`lease`: None where the session was not free, or the prompt is not stored."""

    def __init__(self, leases: Leases, session_id: str, status: LeaseStatus) -> None:
        self._leases = leases
        self._session_id = session_id
        self._status = status
        self._is_wanted = True
        self.lease: Lease | None = None

    def acquire(self, tx: SessionTx) -> Lease | None:
        """To be kept when the transaction is stored."""
        return self._leases.acquire_free(tx.connection, self._session_id, self._status)

    def keep(self, acquired: Lease | None) -> None:
        if acquired is None:
            return
        self.lease = acquired
        self._leases.keep(acquired)
        if not self._is_wanted:
            self.give_back()

    def give_back(self) -> None:
        """No run begins with it. The prompt may still be on its way."""
        self._is_wanted = False
        if self.lease is not None and self._leases.held(self._session_id) is self.lease:
            self._leases.release(self._session_id)
