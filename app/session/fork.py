"""A copy of a session up to a message, in one transaction. Its rows are copied within the database; only ids change."""

from app.project.location import Location
from app.schema.errors import MessageNotFound
from app.schema.session import Session
from app.session import title
from app.session.live import LiveSessions
from app.session.quota import ProjectQuota
from app.session.service import new_session
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.storage.history_copy import HistoryCopy
from app.storage.repositories import message_rows
from app.util import ids


class Forks:
    def __init__(self, store: Store, quota: ProjectQuota, live: LiveSessions) -> None:
        self._store = store
        self._quota = quota
        self._live = live

    async def fork(self, location: Location, session_id: str, message_id: str | None) -> Session:
        """Copies everything before `message_id`, or all finished messages. Waits for requests that change messages. Raises
        NotFound for an unknown session or message, and ProjectFull."""
        await self._quota.require_room(location.project_id)
        fork_id = ids.descending("session")

        def fork(tx: SessionTx) -> None:
            session = _forked(location, fork_id, tx.of(session_id).session())
            extent = message_rows.history_extent(tx.connection, session_id, message_id)
            if extent is None:
                raise MessageNotFound(session_id, message_id or "")
            tx.copy_history(session, _copy(session_id, fork_id, extent))

        async with self._live.get(session_id).messages:
            self._store.live.write_all()
            await self._store.write(fork_id, location.directory, fork)
        return await self._store.session(fork_id)


def _forked(location: Location, fork_id: str, original: Session) -> Session:
    session = new_session(location, title.of_fork(original.title), permission=original.permission)
    session.id = fork_id
    session.agent, session.model, session.metadata = original.agent, original.model, original.metadata
    session.owner = original.owner
    return session


def _copy(source: str, target: str, extent: message_rows.HistoryExtent) -> HistoryCopy:
    (first_message, last_message), (first_part, last_part) = extent.messages, extent.parts
    number, letters = ids.reserve(max(last_message - first_message, last_part - first_part) + 1)
    return HistoryCopy(source, target, extent.before, number - first_message, number - first_part, letters)
