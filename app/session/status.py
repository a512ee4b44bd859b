"""Which sessions are busy. Kept in memory; announced through the store, so that the order among all events holds."""

import asyncio
from typing import NamedTuple

from pydantic import TypeAdapter

from app.schema.event import EventSessionIdle, EventSessionStatus, OfSession, StatusOfSession
from app.schema.session import Busy, Idle, Retry, Session, SessionStatus
from app.session.lease import LeaseStatus
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.storage.repositories import lease_rows, message_rows
from app.storage.repositories.message_rows import StoredMessages

_STATUS: TypeAdapter[SessionStatus] = TypeAdapter(SessionStatus)
SHOWN_FOR_MS = 60_000
"""A session whose server is dead stays busy until another has taken it over, but not for ever."""


def busy_in(directory: str) -> LeaseStatus:
    """What other servers show of a session that is being answered."""
    return LeaseStatus(directory, Busy().wire_json().decode())


class EndOfRun(NamedTuple):
    """`waiting`: the prompt for which the session is not idle yet; `answer`: the newest in the session, if it was looked for."""

    waiting: str | None = None
    answer: StoredMessages | None = None


class Statuses:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._busy: dict[str, tuple[str, Busy | Retry]] = {}

    def is_busy(self, session_id: str) -> bool:
        return session_id in self._busy

    async def of_directory(self, directory: str) -> dict[str, SessionStatus]:
        """Only those that are not idle, on whatever server."""
        shown = await self._store.query(lease_rows.lease_statuses, directory)
        elsewhere = {row.session_id: _STATUS.validate_json(row.status) for row in shown if row.age < SHOWN_FOR_MS}
        return elsewhere | {session: status for session, (where, status) in self._busy.items() if where == directory}

    async def busy_sessions(self) -> set[str]:
        """In whatever directory, on whatever server."""
        return {*await self._store.query(lease_rows.held_sessions, None), *self._busy}

    def set(self, session_id: str, directory: str, status: Busy | Retry) -> asyncio.Future[None]:
        """The future is done when the status is announced."""
        before = self._busy.get(session_id)
        is_shown_elsewhere = any(isinstance(each, Retry) for each in (status, before and before[1]))

        def change(tx: SessionTx) -> None:
            if is_shown_elsewhere:
                tx.put_status(status)
            _announce(tx, status)

        self._busy[session_id] = (directory, status)
        return self._store.post(session_id, directory, change)

    def set_idle(
        self, session_id: str, directory: str, *, releases_lease: bool = False, joins: bool = False, tried: str | None = None
    ) -> asyncio.Future[EndOfRun]:
        """A session is idle for readers when the future is done; it stays busy if the change cannot be stored. `releases_lease`:
        it is free from then on. `joins`: it stays busy, too, for a prompt that another server has accepted, unless it was
        `tried`."""
        before = self._busy.get(session_id)
        lease = self._store.lease(session_id) if releases_lease else None

        def change(tx: SessionTx) -> EndOfRun:
            if lease is not None:
                tx.release(lease)
            end = _end_of_run(tx, tried) if joins else EndOfRun()
            if end.waiting is None:
                tx.close_prompts()
                _announce(tx, Idle())
            return end

        done = self._store.post(session_id, directory, change, releases=releases_lease)
        done.add_done_callback(lambda stored: self._end(session_id, before, stored) if stored.exception() is None else None)
        return done

    def _end(self, session_id: str, ended: tuple[str, Busy | Retry] | None, stored: asyncio.Future[EndOfRun]) -> None:
        """Does nothing if the session's next turn has begun, or will."""
        if stored.result().waiting is None and self._busy.get(session_id) is ended:
            self._busy.pop(session_id, None)

    def mark_busy(self, session_id: str, directory: str) -> None:
        """For readers: a prompt is accepted. The turn announces the status when it begins."""
        self._busy[session_id] = (directory, Busy())

    def forget(self, session_id: str) -> None:
        """Of a session that is deleted, or that another server has taken over: that one announces what becomes of it."""
        self._busy.pop(session_id, None)


def _end_of_run(tx: SessionTx, tried: str | None) -> EndOfRun:
    waiting = message_rows.unanswered_prompt(tx.connection, tx.session_id)
    return EndOfRun(None if waiting == tried else waiting, message_rows.newest_answer(tx.connection, tx.session_id))


def _announce(tx: SessionTx, status: SessionStatus) -> None:
    tx.announce(EventSessionStatus(properties=StatusOfSession(session_id=tx.session_id, status=status)))
    if isinstance(status, Idle):
        tx.announce(EventSessionIdle(properties=OfSession(session_id=tx.session_id)))


def compacting(session: Session, since: int | None) -> Session:
    """A copy of the session with `time.compacting` set, or removed for None."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": since})})
