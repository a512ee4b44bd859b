"""Stores a document's sessions in one transaction, by the same rows as every other change."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.project.location import Location
from app.schema.errors import ServiceError
from app.schema.message import MessageWithParts
from app.schema.session import Session
from app.session import rows
from app.session.change import SessionChange
from app.session.quota import ProjectQuota
from app.session.session_sums import session_sums, sums_of_messages
from app.session.store import Store
from app.storage.engine import Connection
from app.storage.repositories import lease_rows, session_rows
from app.storage.writer import Writes
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.unfinished import finished_message, finished_session


class SessionExists(ServiceError):
    status = 409
    name = "SessionExistsError"

    def __init__(self, session_ids: Collection[str]) -> None:
        listed = ", ".join(sorted(session_ids))
        super().__init__(
            f"There is a session {listed} already, so nothing was imported. Delete it first, or import with new ids (ids=new).",
            sessionIDs=sorted(session_ids),
        )


class SessionChanged(ServiceError):
    status = 409
    name = "ConflictError"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id} is in use or was changed meanwhile, so it was not replaced.")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where imported sessions belong: `location` names their directory and project, `owner` the user (empty: nobody). A directory
    that is not on this machine has the path that the source says, if it says one."""

    location: Location
    owner: str = ""
    is_here: bool = True

    def path_of(self, session: Session) -> str:
        return self.location.path if self.is_here or session.path is None else session.path


class Importer:
    """Whoever calls it has checked the document, and decided about `parentID`, `share` and `revert`: they are stored as they
    are."""

    def __init__(self, store: Store, quota: ProjectQuota) -> None:
        self._store = store
        self._quota = quota

    async def stored(self, session_ids: Collection[str]) -> frozenset[str]:
        """Those of the sessions that are stored already, whosever they are."""
        return frozenset(await self._store.query(session_rows.owners, session_ids))

    async def session(self, session_id: str) -> Session:
        return await self._store.session(session_id)

    async def store(self, document: SessionDocument, destination: Destination, beside: Writes = ()) -> list[str]:
        """Keeps all ids and times, and returns the sessions' ids. The sessions are idle afterwards. All is stored or nothing,
        and what is written `beside` too. Raises SessionExists and ProjectFull."""
        await self._quota.require_room(destination.location.project_id)
        if destination.owner:
            self._store.note_owners()
        histories = document.histories()
        session_ids = [history.info.id for history in histories]
        change = await asyncio.to_thread(self._change, histories, destination)
        change.change.work = partial(_require_new, session_ids)
        change.change.writes.extend(beside)
        await self._store.commit(change)
        return session_ids

    async def replace(self, stored: SessionHistory, by: SessionHistory, destination: Destination, beside: Writes = ()) -> None:
        """Replaces a session that nobody uses by a later state of it. `stored` is what it is replaced from. Raises
        SessionChanged and ProjectFull."""
        location = destination.location
        await self._quota.require_room(location.project_id)
        state = await self._store.query(session_rows.session_state, stored.info.id)
        if state is None or state.messages != len(stored.messages):
            raise SessionChanged(stored.info.id)
        if rows.read_session(stored.info.id, state.session) != stored.info:
            raise SessionChanged(stored.info.id)
        change = self._store.change(stored.info.id, location.directory)
        _remove_lost(change, stored.messages, by.messages)
        kept = {"project_id": stored.info.project_id, "owner": stored.info.owner, "share": stored.info.share}
        change.update_session(finished_session(by.info.model_copy(update={**kept, "path": destination.path_of(by.info)})))
        change.add_to_sums(sums_of_messages(by.messages).plus(session_sums(stored.info), -1))
        change.put_history(*_rows(by), [], [])
        change.put_todos(by.todo)
        change.put_diff(by.diff)
        change.change.work = partial(_require_state, stored.info.id, state)
        change.change.writes.extend(beside)
        await self._store.commit(change)

    def _change(self, histories: Sequence[SessionHistory], destination: Destination) -> SessionChange:
        """One change of all sessions; each one's events are its own."""
        whole, *others = [self._change_of_one(history, destination) for history in histories]
        for other in others:
            whole.change.writes.extend(other.change.writes)
            whole.change.events.extend(other.change.events)
        return whole

    def _change_of_one(self, history: SessionHistory, destination: Destination) -> SessionChange:
        location = destination.location
        placed = {
            "project_id": location.project_id,
            "directory": location.directory,
            "path": destination.path_of(history.info),
            "owner": destination.owner or None,
            **sums_of_messages(history.messages).of_session(),
        }
        change = self._store.change(history.info.id, location.directory)
        change.create_session(finished_session(history.info.model_copy(update=placed)))
        change.put_history(*_rows(history), history.todo, history.diff)
        return change


def _require_new(session_ids: Sequence[str], connection: Connection) -> None:
    """Within the transaction that stores them. Raises SessionExists."""
    if taken := session_rows.lock_new_sessions(connection, session_ids):
        raise SessionExists(taken)


def _require_state(session_id: str, state: session_rows.SessionState, connection: Connection) -> None:
    """Within the transaction that replaces it. Raises SessionChanged."""
    if session_rows.session_state(connection, session_id) != state or lease_rows.held_among(connection, [session_id]):
        raise SessionChanged(session_id)


def _remove_lost(change: SessionChange, before: Sequence[MessageWithParts], after: Sequence[MessageWithParts]) -> None:
    """The messages and parts that are no longer there."""
    parts = {message.info.id: {part.id for part in message.parts} for message in after}
    for message in before:
        if message.info.id not in parts:
            change.remove_message(message.info.id)
            continue
        for part in message.parts:
            if part.id not in parts[message.info.id]:
                change.remove_part(message.info.id, part.id)


def _rows(history: SessionHistory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of its messages and of their parts."""
    messages: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for message in map(finished_message, history.messages):
        messages.append(rows.message_row(message.info))
        parts.extend(map(rows.part_row, message.parts))
    return messages, parts
