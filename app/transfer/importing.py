"""Reads a document from a path or address; takes one that a client sends: checks it, and decides which of its references hold
here; and stores sessions of documents, each document in one transaction and by the same rows as every other change."""

import asyncio
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
from pydantic import Field

from app.permissions.rules import rules_below
from app.project.location import Location
from app.project.snapshot.snapshots import Snapshots
from app.record.repositories import session_rows, work_rows
from app.schema.base import SessionID, Wire
from app.schema.errors import MessageAbortedError, MessageData, ServiceError
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.session import Revert, Session
from app.sessions import rows
from app.sessions.live import compacting
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import ProjectQuota, session_sums, sums_of_messages
from app.tools.web import AddressDenied, FetchFailed, PinnedRequests, fetch
from app.transfer.document import SessionDocument, SessionHistory, read_document
from app.turn.ends import interrupted_part
from app.util import clock

STDIN = "-"
FETCH_SECONDS = 120.0

_SHARE_LINK = re.compile(r"(https?://[^?#]+/s/[0-9a-f]{40})/?", re.IGNORECASE)


class UnreadableSource(Exception):
    """The message says why, for the user."""


async def read_source(source: str, requests: PinnedRequests, max_bytes: int) -> bytes:
    """`source` is a path, `-` or an address. Raises UnreadableSource."""
    if source.lower().startswith(("http://", "https://")):
        return await _fetch(source, requests, max_bytes)
    if source == STDIN:
        return await asyncio.to_thread(_bounded, sys.stdin.buffer, "Standard input", max_bytes)
    return await asyncio.to_thread(_file, source, max_bytes)


def _file(path: str, max_bytes: int) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return _bounded(file, path, max_bytes)
    except OSError as error:
        raise UnreadableSource(f"{path} cannot be read: {error.strerror}") from error


def _bounded(stream: BinaryIO, name: str, max_bytes: int) -> bytes:
    body = stream.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnreadableSource(f"{name} has more than {max_bytes} bytes (OPENSESSION_MAX_IMPORT_BYTES)")
    return body


async def _fetch(url: str, requests: PinnedRequests, max_bytes: int) -> bytes:
    link = _SHARE_LINK.fullmatch(url)
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            page = await fetch(requests, f"{link[1]}/session" if link else url, {"Accept": "application/json"}, max_bytes)
    except TimeoutError:
        raise UnreadableSource(f"{url} was not read within {FETCH_SECONDS:g} seconds") from None
    except AddressDenied as denied:
        raise UnreadableSource(f"{denied}. OPENSESSION_ALLOW_PRIVATE_ADDRESSES=true allows private ones.") from denied
    except FetchFailed as failed:
        raise UnreadableSource(str(failed)) from failed
    return await asyncio.to_thread(_document_of_shared, page.body, url) if link else page.body


def _document_of_shared(body: bytes, url: str) -> bytes:
    """The conversation of a share link has no directory and no project: the import gives it both."""
    try:
        shared: dict[str, Any] = orjson.loads(body)
        info = {"projectID": "", "directory": "", **shared.pop("session")}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UnreadableSource(f"{url} is no share link of a server of this kind") from error
    return orjson.dumps({"info": info, **shared})


UNFINISHED = MessageAbortedError(data=MessageData(message="This answer was unfinished when its session was imported."))


def finished_message(message: MessageWithParts) -> MessageWithParts:
    """Open calls and texts end as interrupted, an open answer with an error: each call has a result, and the next prompt goes on
    from there."""
    parts = [interrupted_part(part) or part for part in message.parts]
    info = message.info
    if isinstance(info, AssistantMessage) and info.time.completed is None:
        time = info.time.model_copy(update={"completed": clock.now_ms()})
        info = info.model_copy(update={"time": time, "error": info.error or UNFINISHED})
    return MessageWithParts.model_construct(info=info, parts=parts)


Rows = list[dict[str, Any]]


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
    """Where imported sessions belong: `location` has their directory and project, `owner` the user (empty: none). A directory
    that is not on this machine has the source's path, if the source has one."""

    location: Location
    owner: str = ""
    is_here: bool = True

    def path_of(self, session: Session) -> str:
        return self.location.path if self.is_here or session.path is None else session.path


class ImportedSessions(Wire):
    """The session as it is stored, and notes about what was left out of the document."""

    info: Session
    sessions: Annotated[list[SessionID], Field(description="Ids of the session and its descendants, in the document's order")]
    notes: Annotated[list[str], Field(description="What was not taken over, and why")]


class Importer:
    def __init__(self, store: Store, quota: ProjectQuota) -> None:
        self._store = store
        self._quota = quota

    async def take(
        self, body: bytes, destination: Destination, snapshots: Snapshots | None, max_part_bytes: int, *, new_ids: bool
    ) -> ImportedSessions:
        """`body`: a document's JSON, from a client. `snapshots`: of the destination, None if it has none. Raises InvalidDocument,
        TooLarge, SessionExists, ProjectFull; nothing is stored then."""
        document = await asyncio.to_thread(read_document, body, max_part_bytes, new_ids=new_ids)
        notes = await asyncio.to_thread(_leave_links, document)
        for history in document.histories():
            revert, note = await _revert_here(history.info.revert, {each.info.id for each in history.messages}, snapshots)
            history.info.revert = revert
            notes += [f"{history.info.id}: {note}"] if note else []
        sessions = await self.store(document, destination)
        return ImportedSessions(info=await self._store.session(document.info.id), sessions=sessions, notes=notes)

    async def store(self, document: SessionDocument, destination: Destination, fingerprint: str | None = None) -> list[str]:
        """Keeps all ids and times, and returns the sessions' ids. The sessions are idle afterwards. Stores all or nothing.
        The caller has checked the document, and decided about `parentID`, `share` and `revert`, which are stored unchanged.
        `fingerprint`: of a session of OpenCode, by which the next import knows it. Raises SessionExists and ProjectFull."""
        await self._quota.require_room(destination.location.project_id)
        if destination.owner:
            self._store.note_owners()
        histories = document.histories()
        session_ids = [history.info.id for history in histories]
        prepared = await asyncio.to_thread(
            lambda: [(_placed(each.info, each.messages, destination), _rows(each), each) for each in histories]
        )
        location = destination.location

        def store(tx: SessionTx) -> None:
            if taken := session_rows.lock_new_sessions(tx.connection, session_ids):
                raise SessionExists(taken)
            for session, stored_rows, history in prepared:
                own = tx.of(session.id)
                own.create(session)
                own.put_history(*stored_rows, history.todo, history.diff)
            if fingerprint is not None:
                tx.tx.execute(tx.tx.sql.put_imported, {"id": document.info.id, "fingerprint": fingerprint})

        await self._store.write(session_ids[0], location.directory, store)
        return session_ids

    async def replace(self, stored: SessionHistory, by: SessionHistory, destination: Destination, fingerprint: str) -> None:
        """Replaces a session that nobody uses by a later state of it. `stored`: the state to replace. Raises SessionChanged and
        ProjectFull."""
        location = destination.location
        await self._quota.require_room(location.project_id)
        state = await self._store.query(session_rows.session_state, stored.info.id)
        if state is None or state.messages != len(stored.messages) or rows.read_session(stored.info.id, state) != stored.info:
            raise SessionChanged(stored.info.id)
        kept = {"project_id": stored.info.project_id, "owner": stored.info.owner, "share": stored.info.share}
        session = compacting(by.info.model_copy(update={**kept, "path": destination.path_of(by.info)}), None)
        added = sums_of_messages(by.messages).plus(session_sums(stored.info), -1)
        stored_rows = await asyncio.to_thread(_rows, by)

        def replace(tx: SessionTx) -> None:
            if session_rows.session_state(tx.connection, tx.session_id) != state or work_rows.held_among(
                tx.connection, [tx.session_id]
            ):
                raise SessionChanged(tx.session_id)
            _remove_lost(tx, stored.messages, by.messages)
            tx.update(session)
            tx.add_to_sums(added)
            tx.put_history(*stored_rows)
            tx.put_todos(by.todo)
            tx.put_diff(by.diff)
            tx.tx.execute(tx.tx.sql.put_imported, {"id": tx.session_id, "fingerprint": fingerprint})

        await self._store.write(stored.info.id, location.directory, replace)


def _placed(info: Session, messages: Sequence[MessageWithParts], destination: Destination) -> Session:
    """The session as it is stored at its destination."""
    placed = {
        "project_id": destination.location.project_id,
        "directory": destination.location.directory,
        "path": destination.path_of(info),
        "owner": destination.owner or None,
        "no_undo": destination.location.no_undo,
        **sums_of_messages(messages).of_session(),
    }
    return compacting(info.model_copy(update=placed), None)


def _remove_lost(tx: SessionTx, before: Sequence[MessageWithParts], after: Sequence[MessageWithParts]) -> None:
    """Removes the messages and parts that `after` does not have."""
    parts = {message.info.id: {part.id for part in message.parts} for message in after}
    for message in before:
        if message.info.id not in parts:
            tx.remove_message(message.info.id)
            continue
        for part in message.parts:
            if part.id not in parts[message.info.id]:
                tx.remove_part(message.info.id, part.id)


def _rows(history: SessionHistory) -> tuple[Rows, Rows, Rows]:
    """The rows of the messages, of the parts and of their texts."""
    messages: Rows = []
    parts: Rows = []
    texts: Rows = []
    for message in map(finished_message, history.messages):
        row, own = rows.message_row(message.info), list(map(rows.part_row, message.parts))
        created = rows.created_time(row["body"])
        messages.append(row)
        parts.extend(own)
        texts.extend(text for part in own if (text := rows.text_row(part, created)) is not None)
    return messages, parts, texts


def _leave_links(document: SessionDocument) -> list[str]:
    """A parent outside the document, and share links, belong to the document's source. A child has no more rights than its
    parent, whatever the document says. Returns notes."""
    notes = []
    if document.info.parent_id is not None:
        notes.append(f"{document.info.id}: its parent {document.info.parent_id} is not in the document; it has none here")
        document.info.parent_id = None
    below = [(each.info.id, each.info.parent_id or "", each.info.permission or []) for each in document.children]
    rules = rules_below((document.info.id, document.info.permission or []), below)
    for child in document.children:
        child.info.permission = rules[child.info.id] or None
    for history in document.histories():
        if history.info.share is not None:
            notes.append(f"{history.info.id}: it is not shared here, its link {history.info.share.url} belongs to another server")
            history.info.share = None
    return notes


async def _revert_here(
    revert: Revert | None, message_ids: set[str], snapshots: Snapshots | None
) -> tuple[Revert | None, str | None]:
    """The revert that is in force after the import, and a note. Without its snapshot it still hides its messages, and unrevert
    shows them again but touches no file."""
    if revert is None:
        return None, None
    if revert.message_id not in message_ids:
        return None, f"it was reverted to {revert.message_id}, which is not in the document; it is not reverted here"
    revert = revert.model_copy(update={"unfinished": None})
    if revert.snapshot is None or (snapshots is not None and await snapshots.has(revert.snapshot)):
        return revert, None
    hidden = Revert(message_id=revert.message_id, part_id=revert.part_id)
    return hidden, f"the snapshot {revert.snapshot} of its revert is not here: unrevert shows the messages and restores no file"
