"""A copy of a session up to a message, in one transaction. Its rows are copied within the database; only ids change."""

from typing import Any

from app.project.location import Location
from app.schema.errors import MessageNotFound, SessionNotFound
from app.schema.session import Session
from app.session import rows, title
from app.session.gate import HoldKind, SessionGate
from app.session.quota import ProjectQuota
from app.session.service import new_session
from app.session.store import Store
from app.storage.engine import Connection
from app.storage.history_copy import HistoryCopy
from app.storage.repositories import message_rows, session_rows
from app.util import ids


class Forks:
    def __init__(self, store: Store, quota: ProjectQuota, gate: SessionGate) -> None:
        self._store = store
        self._quota = quota
        self._gate = gate

    async def fork(self, location: Location, session_id: str, message_id: str | None) -> Session:
        """Copies everything before `message_id`, or all finished messages. Waits for requests that change messages. Raises
        NotFound for an unknown session or message, and ProjectFull."""
        await self._quota.require_room(location.project_id)
        async with self._gate.hold(session_id, HoldKind.READ), self._store.lock(session_id):
            await self._store.drain()
            original, extent = await self._store.query(_source, session_id, message_id)
            fork = _forked(location, rows.read_session(session_id, original))
            change = self._store.change(fork.id, location.directory)
            change.copy_history(fork, _copy(session_id, fork.id, extent))
            await self._store.commit(change)
        return await self._store.session(fork.id)


def _source(connection: Connection, session_id: str, message_id: str | None) -> tuple[Any, message_rows.HistoryExtent]:
    session = session_rows.stored_session(connection, session_id)
    if session is None:
        raise SessionNotFound(session_id)
    extent = message_rows.history_extent(connection, session_id, message_id)
    if extent is None:
        raise MessageNotFound(session_id, message_id or "")
    return session, extent


def _forked(location: Location, original: Session) -> Session:
    session = new_session(location, title.of_fork(original.title), permission=original.permission)
    session.agent, session.model, session.metadata = original.agent, original.model, original.metadata
    session.owner = original.owner
    return session


def _copy(source: str, target: str, extent: message_rows.HistoryExtent) -> HistoryCopy:
    (first_message, last_message), (first_part, last_part) = extent.messages, extent.parts
    number, letters = ids.reserve(max(last_message - first_message, last_part - first_part) + 1)
    return HistoryCopy(source, target, extent.before, number - first_message, number - first_part, letters)
