"""Takes a document that a client sends: checks it, decides what of it holds here, and stores it."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from app.permission.rules import within_limits
from app.schema.base import SessionID, Wire
from app.schema.session import Revert, Session
from app.transfer.document import SessionDocument
from app.transfer.importer import Destination, Importer
from app.transfer.new_ids import with_new_ids
from app.transfer.parse import load, read_document


class SnapshotNames(Protocol):
    async def has(self, tree: str) -> bool:
        """Whether there is such a snapshot."""
        ...


class ImportedSessions(Wire):
    """The session as it is stored, and what of the document was left out."""

    info: Session
    sessions: Annotated[list[SessionID], Field(description="Ids of the session and its descendants, in the document's order")]
    notes: Annotated[list[str], Field(description="What was not taken over, and why")]


@dataclass(frozen=True, slots=True)
class DocumentImport:
    """`body` is the document's JSON. `snapshots` are those of the destination, None where there are none."""

    body: bytes
    destination: Destination
    snapshots: SnapshotNames | None
    with_new_ids: bool = False


class Imports:
    def __init__(self, importer: Importer, max_part_bytes: int) -> None:
        self._importer = importer
        self._max_part_bytes = max_part_bytes

    async def take(self, wanted: DocumentImport) -> ImportedSessions:
        """Raises InvalidDocument, TooLarge, SessionExists, ProjectFull; nothing is stored then."""
        document = await asyncio.to_thread(self._read, wanted)
        notes = _leave_links(document)
        for history in document.histories():
            revert, note = await _revert_here(history.info.revert, {each.info.id for each in history.messages}, wanted.snapshots)
            history.info.revert = revert
            notes += [f"{history.info.id}: {note}"] if note else []
        sessions = await self._importer.store(document, wanted.destination)
        return ImportedSessions(info=await self._importer.session(document.info.id), sessions=sessions, notes=notes)

    def _read(self, wanted: DocumentImport) -> SessionDocument:
        value = load(wanted.body)
        return read_document(with_new_ids(value) if wanted.with_new_ids else value, self._max_part_bytes)


def _leave_links(document: SessionDocument) -> list[str]:
    """A parent outside the document, and share links, belong to where the document comes from. A child has no more rights than
    its parent, whatever the document says. Returns notes."""
    notes = []
    if document.info.parent_id is not None:
        notes.append(f"{document.info.id}: its parent {document.info.parent_id} is not in the document; it has none here")
        document.info.parent_id = None
    rules = {document.info.id: document.info.permission or []}
    for child in document.children:
        limits = rules[child.info.parent_id or ""]
        rules[child.info.id] = within_limits(child.info.permission or [], limits)
        child.info.permission = rules[child.info.id] or None
    for history in document.histories():
        if history.info.share is not None:
            notes.append(f"{history.info.id}: it is not shared here, its link {history.info.share.url} belongs to another server")
            history.info.share = None
    return notes


async def _revert_here(
    revert: Revert | None, message_ids: set[str], snapshots: SnapshotNames | None
) -> tuple[Revert | None, str | None]:
    """The revert that is in force after the import, and a note. Without its snapshot it still hides its messages, and unrevert
    shows them again and touches no file."""
    if revert is None:
        return None, None
    if revert.message_id not in message_ids:
        return None, f"it was reverted to {revert.message_id}, which is not in the document; it is not reverted here"
    revert = revert.model_copy(update={"unfinished": None})
    if revert.snapshot is None or (snapshots is not None and await snapshots.has(revert.snapshot)):
        return revert, None
    hidden = Revert(message_id=revert.message_id, part_id=revert.part_id)
    return hidden, f"the snapshot {revert.snapshot} of its revert is not here: unrevert shows the messages and restores no file"
