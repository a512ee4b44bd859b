"""What the importer stores, and that it stores all or nothing."""

import pytest
from conversation import assistant, text, tool, user
from session_parts import PLACE, Sessions

from app.record.engine import StorageError
from app.schema.message import MessageWithParts
from app.schema.part import Part
from app.schema.session import FileDiff, Session, Todo
from app.sessions.service import new_session
from app.sessions.usage import ProjectFull, ProjectQuota
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importing import Destination, Importer, SessionExists
from app.util import ids

TODO = Todo(content="tidy", status="pending", priority="high", id="1")
DIFF = FileDiff(file="a.txt", before="", after="x\n", additions=1, deletions=0)


def importer(sessions: Sessions, most: int = 2**40) -> Importer:
    return Importer(sessions.store, ProjectQuota(sessions.storage.database, most))


def destination(owner: str = "") -> Destination:
    return Destination(PLACE, owner)


def history(*messages: MessageWithParts, parent: str | None = None, title: str = "Old") -> SessionHistory:
    """Of a session that nobody has stored."""
    session = new_session(PLACE, title, parent)
    session.project_id, session.directory, session.time.compacting = "elsewhere", "/elsewhere", 5
    return SessionHistory(info=session, messages=[of_session(session, message) for message in messages])


def of_session(session: Session, message: MessageWithParts) -> MessageWithParts:
    def moved(part: Part) -> Part:
        return part.model_copy(update={"session_id": session.id, "id": ids.ascending("part")})

    info = message.info.model_copy(update={"session_id": session.id})
    return MessageWithParts(info=info, parts=[moved(part) for part in message.parts])


def tree() -> SessionDocument:
    question = user(text("Grüße, 世界"))
    root = history(question, assistant(question, text("Hello."), tool()))
    root.todo, root.diff = [TODO], [DIFF]
    child = history(user(text("Look")), parent=root.info.id)
    return SessionDocument(**dict(root), children=[child, history(parent=child.info.id)])


async def test_a_child_that_exists_keeps_the_whole_tree_out(sessions: Sessions) -> None:
    document = tree()
    await importer(sessions).store(SessionDocument(**dict(document.children[0])), destination())
    with pytest.raises(SessionExists):
        await importer(sessions).store(document, destination())
    assert await importer(sessions).stored([document.info.id, document.children[1].info.id]) == frozenset()


async def test_a_full_disk_or_project_stores_nothing(sessions: Sessions) -> None:
    document = tree()
    with pytest.raises(ProjectFull):
        await importer(sessions, most=1).store(await filled(sessions, document), destination())
    sessions.database.full = True
    with pytest.raises(StorageError):
        await importer(sessions).store(document, destination())
    sessions.database.full = False
    assert await importer(sessions).stored([document.info.id]) == frozenset()
    assert await importer(sessions).store(document, destination())


async def filled(sessions: Sessions, document: SessionDocument) -> SessionDocument:
    """The project has something in it."""
    await sessions.put(user(text("x" * 100)))
    return document
