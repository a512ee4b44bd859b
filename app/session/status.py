"""Which sessions are busy. Kept in memory; announced through the store, so that the order among all events holds."""

import asyncio

import orjson
from pydantic import TypeAdapter

from app.schema.event import EventSessionIdle, EventSessionStatus
from app.schema.session import Busy, Idle, Retry, Session, SessionStatus
from app.session.lease import LeaseStatus
from app.session.store import Store
from app.storage.repositories import lease_rows

_STATUS: TypeAdapter[SessionStatus] = TypeAdapter(SessionStatus)
SHOWN_FOR_MS = 60_000
"""A session whose server is dead stays busy until another has taken it over, but not for ever."""


def busy_in(directory: str) -> LeaseStatus:
    """What other servers show of a session that is being answered."""
    return LeaseStatus(directory, Busy().wire_json().decode())


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

    def set(
        self, session_id: str, directory: str, status: SessionStatus, *, releases_lease: bool = False
    ) -> asyncio.Future[None]:
        """The future is done when the status is announced. A session is idle for readers from then on; it stays busy if the
        change cannot be stored. `releases_lease`: the session is free from then on."""
        change, shown_id = self._store.change(session_id, directory), orjson.dumps(session_id)
        change.change.releases_lease = releases_lease
        change.announce(EventSessionStatus.around(b'{"sessionID":%b,"status":%b}' % (shown_id, status.wire_json())))
        if isinstance(status, Idle):
            change.close_prompts()
            change.announce(EventSessionIdle.around(b'{"sessionID":%b}' % shown_id))
        else:
            if Retry in (type(status), type(self._busy.get(session_id, ("", status))[1])):
                change.put_status(status)
            self._busy[session_id] = (directory, status)
        done = self._store.post(change)
        if isinstance(status, Idle):
            ended = self._busy.get(session_id)
            done.add_done_callback(lambda stored: self._end(session_id, ended) if stored.exception() is None else None)
        return done

    def _end(self, session_id: str, ended: tuple[str, Busy | Retry] | None) -> None:
        """Does nothing if the session's next turn has begun."""
        if self._busy.get(session_id) is ended:
            self._busy.pop(session_id, None)

    def mark_busy(self, session_id: str, directory: str) -> None:
        """For readers: a prompt is accepted. The turn announces the status when it begins."""
        self._busy[session_id] = (directory, Busy())

    def forget(self, session_id: str) -> None:
        """Of a session that is deleted, or that another server has taken over: that one announces what becomes of it."""
        self._busy.pop(session_id, None)


def compacting(session: Session, since: int | None) -> Session:
    """A copy of the session with `time.compacting` set, or removed for None."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": since})})
