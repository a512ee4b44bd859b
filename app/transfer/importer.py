"""Stores a document's sessions in one transaction, by the same rows as every other change."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from app.project.location import Location
from app.schema.errors import ServiceError
from app.schema.message import MessageWithParts
from app.schema.session import Session
from app.session import rows
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.session.usage import ProjectQuota, session_sums, sums_of_messages
from app.storage.repositories import session_rows, work_rows
from app.storage.writer import Tx
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


Beside = Callable[[Tx], None]


def _nothing(_tx: Tx) -> None:
    pass


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

    async def store(self, document: SessionDocument, destination: Destination, beside: Beside = _nothing) -> list[str]:
        """Keeps all ids and times, and returns the sessions' ids. The sessions are idle afterwards. All is stored or nothing,
        and what is written `beside` too. Raises SessionExists and ProjectFull."""
        await self._quota.require_room(destination.location.project_id)
        if destination.owner:
            self._store.note_owners()
        histories = document.histories()
        session_ids = [history.info.id for history in histories]
        prepared = await asyncio.to_thread(lambda: [_PreparedHistory.of(history, destination) for history in histories])
        location = destination.location

        def store(tx: SessionTx) -> None:
            if taken := session_rows.lock_new_sessions(tx.connection, session_ids):
                raise SessionExists(taken)
            for each in prepared:
                each.put(tx.of(each.session.id))
            beside(tx.tx)

        await self._store.write(session_ids[0], location.directory, store)
        return session_ids

    async def replace(
        self, stored: SessionHistory, by: SessionHistory, destination: Destination, beside: Beside = _nothing
    ) -> None:
        """Replaces a session that nobody uses by a later state of it. `stored` is what it is replaced from. Raises
        SessionChanged and ProjectFull."""
        location = destination.location
        await self._quota.require_room(location.project_id)
        state = await self._store.query(session_rows.session_state, stored.info.id)
        if state is None or state.messages != len(stored.messages):
            raise SessionChanged(stored.info.id)
        if rows.read_session(stored.info.id, state.session) != stored.info:
            raise SessionChanged(stored.info.id)
        kept = {"project_id": stored.info.project_id, "owner": stored.info.owner, "share": stored.info.share}
        session = finished_session(by.info.model_copy(update={**kept, "path": destination.path_of(by.info)}))
        added = sums_of_messages(by.messages).plus(session_sums(stored.info), -1)
        message_rows, part_rows = _rows(by)

        def replace(tx: SessionTx) -> None:
            if session_rows.session_state(tx.connection, tx.session_id) != state or work_rows.held_among(
                tx.connection, [tx.session_id]
            ):
                raise SessionChanged(tx.session_id)
            _remove_lost(tx, stored.messages, by.messages)
            tx.update(session)
            tx.add_to_sums(added)
            tx.put_history(message_rows, part_rows)
            tx.put_todos(by.todo)
            tx.put_diff(by.diff)
            beside(tx.tx)

        await self._store.write(stored.info.id, location.directory, replace)


@dataclass(frozen=True, slots=True)
class _PreparedHistory:
    """A history, ready to be stored."""

    session: Session
    messages: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    history: SessionHistory

    @classmethod
    def of(cls, history: SessionHistory, destination: Destination) -> "_PreparedHistory":
        placed = {
            "project_id": destination.location.project_id,
            "directory": destination.location.directory,
            "path": destination.path_of(history.info),
            "owner": destination.owner or None,
            "no_undo": destination.location.no_undo,
            **sums_of_messages(history.messages).of_session(),
        }
        return cls(finished_session(history.info.model_copy(update=placed)), *_rows(history), history)

    def put(self, tx: SessionTx) -> None:
        tx.create(self.session)
        tx.put_history(self.messages, self.parts, self.history.todo, self.history.diff)


def _remove_lost(tx: SessionTx, before: Sequence[MessageWithParts], after: Sequence[MessageWithParts]) -> None:
    """The messages and parts that are no longer there."""
    parts = {message.info.id: {part.id for part in message.parts} for message in after}
    for message in before:
        if message.info.id not in parts:
            tx.remove_message(message.info.id)
            continue
        for part in message.parts:
            if part.id not in parts[message.info.id]:
                tx.remove_part(message.info.id, part.id)


def _rows(history: SessionHistory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of its messages and of their parts."""
    messages: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for message in map(finished_message, history.messages):
        messages.append(rows.message_row(message.info))
        parts.extend(map(rows.part_row, message.parts))
    return messages, parts
