"""Which sessions are at work. Kept in memory; announced through the store, so that the order with everything else holds."""

import asyncio

from app.schema.event import EventSessionIdle, EventSessionStatus, OfSession, StatusOfSession
from app.schema.session import Busy, Idle, Retry, Session, SessionStatus
from app.session.store import Store


class Statuses:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._working: dict[str, tuple[str, Busy | Retry]] = {}

    def is_busy(self, session_id: str) -> bool:
        return session_id in self._working

    def of_directory(self, directory: str) -> dict[str, SessionStatus]:
        """Only those that are not idle."""
        return {session: status for session, (where, status) in self._working.items() if where == directory}

    def set(self, session_id: str, directory: str, status: SessionStatus) -> asyncio.Future[None]:
        """The future is done when it is announced; a session is idle for readers from that moment, and stays busy when its end
        cannot be stored."""
        change = self._store.change(session_id, directory)
        change.announce(EventSessionStatus(properties=StatusOfSession(session_id=session_id, status=status)))
        if isinstance(status, Idle):
            change.close_prompts()
            change.announce(EventSessionIdle(properties=OfSession(session_id=session_id)))
        else:
            self._working[session_id] = (directory, status)
        done = self._store.post(change)
        if isinstance(status, Idle):
            ended = self._working.get(session_id)
            done.add_done_callback(lambda stored: self._end(session_id, ended) if stored.exception() is None else None)
        return done

    def _end(self, session_id: str, ended: tuple[str, Busy | Retry] | None) -> None:
        """Unless its next turn has begun."""
        if self._working.get(session_id) is ended:
            self._working.pop(session_id, None)

    def mark_busy(self, session_id: str, directory: str) -> None:
        """For readers, from now on: its prompt is accepted. The turn announces it when it begins."""
        self._working[session_id] = (directory, Busy())

    def leave(self, session_id: str, directory: str) -> None:
        """Of a session that another server runs now. Who listens here hears that it is idle here; nothing is stored."""
        self._working.pop(session_id, None)
        change = self._store.change(session_id, directory)
        change.announce(EventSessionStatus(properties=StatusOfSession(session_id=session_id, status=Idle())), durable=False)
        change.announce(EventSessionIdle(properties=OfSession(session_id=session_id)), durable=False)
        self._store.post(change)

    def forget(self, session_id: str) -> None:
        """Of a deleted session. Nothing is announced: its deletion is."""
        self._working.pop(session_id, None)


def compacting(session: Session, since: int | None) -> Session:
    """The session as being compacted since a moment, or not at all."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": since})})
