"""What the importer stores, and that it stores all or nothing."""

import asyncio

import pytest
from conversation import assistant, running, text, tool, user
from session_parts import PLACE, Sessions

from app.schema.errors import MessageAbortedError
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part, ToolPart
from app.schema.session import FileDiff, Session, Todo
from app.session.quota import ProjectFull, ProjectQuota
from app.session.service import new_session
from app.storage import tables
from app.storage.engine import StorageError
from app.storage.repositories import lease_rows, session_rows
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importing import Destination, Importer, SessionExists
from app.util import ids

TODO = Todo(content="tidy", status="pending", priority="high", id="1")
DIFF = FileDiff(file="a.txt", before="", after="x\n", additions=1, deletions=0)


def importer(sessions: Sessions, most: int = 2**40) -> Importer:
    return Importer(sessions.store, ProjectQuota(sessions.store, most))


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


async def test_a_tree_is_stored_with_its_ids_where_it_is_imported(sessions: Sessions) -> None:
    document = tree()
    kept = await importer(sessions).store(document, destination("anna"))
    assert kept == [each.info.id for each in document.histories()]
    for each in document.histories():
        session = await sessions.store.session(each.info.id)
        expected = {"project_id": "p", "directory": PLACE.directory, "owner": "anna"}
        time = each.info.time.model_copy(update={"compacting": None})
        assert session == each.info.model_copy(update={**expected, "time": time})
        assert await sessions.store.messages(session.id) == each.messages
    for table, value in ((tables.TODO, TODO), (tables.DIFF, DIFF)):
        body = await sessions.store.query(session_rows.body_of, table, kept[0])
        assert body == f"[{value.wire_json().decode()}]"


async def test_each_session_is_announced_as_created_and_no_message_is(sessions: Sessions) -> None:
    sessions.storage.bus.published.clear()
    kept = await importer(sessions).store(tree(), destination())
    announced = [(event["type"], event["properties"]["info"]["id"]) for event in sessions.announced]
    assert announced == [(kind, each) for each in kept for kind in ("session.created", "session.updated")]


async def test_what_was_unfinished_is_interrupted(sessions: Sessions) -> None:
    question = user(text("Go"))
    answer = assistant(question, tool(running()), finish=None)
    assert isinstance(answer.info, AssistantMessage)
    answer.info.time.completed = None
    document = SessionDocument(**dict(history(question, answer)))
    [kept] = await importer(sessions).store(document, destination())
    _, closed = await sessions.store.messages(kept)
    assert isinstance(closed.info, AssistantMessage) and isinstance(closed.info.error, MessageAbortedError)
    assert closed.info.time.completed is not None
    [call] = closed.parts
    assert isinstance(call, ToolPart) and call.state.status == "error"
    assert await sessions.store.query(lease_rows.orphaned_messages) == []
    waiting = (await sessions.store.query(session_rows.session_and_waiting_prompts, kept)).waiting
    assert waiting == 0


async def test_of_two_imports_at_once_one_is_refused_and_nothing_is_doubled(sessions: Sessions) -> None:
    document = tree()
    importing = importer(sessions)
    outcomes = await asyncio.gather(*(importing.store(document, destination()) for _ in range(2)), return_exceptions=True)
    [refused] = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert isinstance(refused, SessionExists) and document.info.id in refused.message
    assert len(await sessions.store.messages(document.info.id)) == len(document.messages)
    assert await importing.stored([document.info.id, "ses_none"]) == {document.info.id}


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
