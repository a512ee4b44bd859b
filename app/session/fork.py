"""A copy of a session up to a message, in one transaction. Bodies are copied as they are; only ids change."""

from dataclasses import dataclass
from typing import Any

from app.project.location import Location
from app.schema.errors import MessageNotFound, SessionNotFound
from app.schema.session import Session
from app.session import rows, title
from app.session.gate import HoldKind, SessionGate
from app.session.quota import ProjectQuota
from app.session.service import new_session
from app.session.session_sums import sums_of_rows
from app.session.store import Store, read_session
from app.storage import queries
from app.storage.engine import Connection
from app.util import ids


@dataclass(frozen=True, slots=True)
class _Copied:
    session: Session
    messages: list[dict[str, Any]]
    parts: list[dict[str, Any]]


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
            source, stored = await self._store.query(_source, session_id)
        original = read_session(session_id, source)
        copied = _copy(location, original, _until(rows.without_damage(session_id, stored), session_id, message_id))
        change = self._store.change(copied.session.id, location.directory)
        change.create_session(copied.session)
        change.copy_messages(copied.messages, copied.parts)
        await self._store.commit(change)
        return copied.session


def _source(connection: Connection, session_id: str) -> tuple[str, queries.StoredMessages]:
    body = queries.session_body(connection, session_id)
    if body is None:
        raise SessionNotFound(session_id)
    return body, queries.rows_to_copy(connection, session_id)


def _until(stored: queries.StoredMessages, session_id: str, message_id: str | None) -> queries.StoredMessages:
    """The finished messages before `message_id`, which is excluded."""
    finished = queries.StoredMessages([row for row in stored.messages if row.role == "user" or not row.open], stored.parts)
    if message_id is None:
        return finished
    places = [index for index, row in enumerate(stored.messages) if row.id == message_id]
    if not places:
        raise MessageNotFound(session_id, message_id)
    boundary = stored.messages[places[0]].seq
    return queries.StoredMessages([row for row in finished.messages if row.seq < boundary], stored.parts)


def _copy(location: Location, original: Session, stored: queries.StoredMessages) -> _Copied:
    new_ids = {row.id: ids.ascending("message") for row in stored.messages}
    session = new_session(location, title.of_fork(original.title), permission=original.permission)
    session.agent, session.model, session.metadata = original.agent, original.model, original.metadata
    session.owner = original.owner
    copied = [row for row in stored.parts if row.message_id in new_ids]
    session = session.model_copy(update=sums_of_rows(copied).of_session())
    messages = [
        {
            "session_id": session.id,
            "id": new_ids[row.id],
            "role": row.role,
            "parent_id": new_ids.get(row.parent_id, row.parent_id),
            "open": False,
            "boundary": row.boundary,
            "input_hash": None,
            "body": row.body,
            "live_body": row.live_body,
        }
        for row in stored.messages
    ]
    parts = [
        {
            "session_id": session.id,
            "message_id": new_ids[row.message_id],
            "id": ids.ascending("part"),
            "type": row.type,
            "body": row.body,
            "live_body": row.live_body,
            "snapshot": row.snapshot,
        }
        for row in copied
    ]
    return _Copied(session, messages, parts)
