"""What the importer stores, and that it stores all or nothing."""

import asyncio

import pytest
from conversation import assistant, running, text, tool, user
from open_store import OpenStore

from app.schema.errors import MessageAbortedError
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part, ToolPart
from app.schema.session import FileDiff, Session, Todo
from app.session.quota import ProjectFull, ProjectQuota
from app.session.service import new_session
from app.storage import queries, tables
from app.storage.engine import StorageError
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importer import Destination, Importer, SessionExists
from app.util import ids

TODO = Todo(content="tidy", status="pending", priority="high", id="1")
DIFF = FileDiff(file="a.txt", before="", after="x\n", additions=1, deletions=0)


def importer(stored: OpenStore, most: int = 2**40) -> Importer:
    return Importer(stored.store, ProjectQuota(stored.store, most))


def destination(stored: OpenStore, owner: str = "") -> Destination:
    return Destination(stored.location, owner)


def history(stored: OpenStore, *messages: MessageWithParts, parent: str | None = None, title: str = "Old") -> SessionHistory:
    """Of a session that nobody has stored."""
    session = new_session(stored.location, title, parent)
    session.project_id, session.directory, session.time.compacting = "elsewhere", "/elsewhere", 5
    return SessionHistory(info=session, messages=[of_session(session, message) for message in messages])


def of_session(session: Session, message: MessageWithParts) -> MessageWithParts:
    def moved(part: Part) -> Part:
        return part.model_copy(update={"session_id": session.id, "id": ids.ascending("part")})

    info = message.info.model_copy(update={"session_id": session.id})
    return MessageWithParts(info=info, parts=[moved(part) for part in message.parts])


def tree(stored: OpenStore) -> SessionDocument:
    question = user(text("Grüße, 世界"))
    root = history(stored, question, assistant(question, text("Hello."), tool()))
    root.todo, root.diff = [TODO], [DIFF]
    child = history(stored, user(text("Look")), parent=root.info.id)
    return SessionDocument(**dict(root), children=[child, history(stored, parent=child.info.id)])


async def test_a_tree_is_stored_with_its_ids_where_it_is_imported(stored: OpenStore) -> None:
    document = tree(stored)
    kept = await importer(stored).store(document, destination(stored, "anna"))
    assert kept == [each.info.id for each in document.histories()]
    for each in document.histories():
        session = await stored.store.session(each.info.id)
        expected = {"project_id": "global", "directory": stored.location.directory, "owner": "anna"}
        time = each.info.time.model_copy(update={"compacting": None})
        assert session == each.info.model_copy(update={**expected, "time": time})
        assert await stored.store.messages(session.id) == each.messages
    for table, value in ((tables.TODO, TODO), (tables.DIFF, DIFF)):
        body = await stored.store.query(queries.body_of, table, session_id=kept[0])
        assert body == f"[{value.wire_json().decode()}]"


async def test_each_session_is_announced_as_created_and_no_message_is(stored: OpenStore) -> None:
    stored.announced.events.clear()
    kept = await importer(stored).store(tree(stored), destination(stored))
    announced = [(event["type"], event["properties"]["info"]["id"]) for event in stored.announced.events]
    assert announced == [(kind, each) for each in kept for kind in ("session.created", "session.updated")]


async def test_what_was_unfinished_is_interrupted(stored: OpenStore) -> None:
    question = user(text("Go"))
    answer = assistant(question, tool(running()), finish=None)
    assert isinstance(answer.info, AssistantMessage)
    answer.info.time.completed = None
    document = SessionDocument(**dict(history(stored, question, answer)))
    [kept] = await importer(stored).store(document, destination(stored))
    _, closed = await stored.store.messages(kept)
    assert isinstance(closed.info, AssistantMessage) and isinstance(closed.info.error, MessageAbortedError)
    assert closed.info.time.completed is not None
    [call] = closed.parts
    assert isinstance(call, ToolPart) and call.state.status == "error"
    assert await stored.store.query(queries.orphaned_messages) == []
    assert await stored.store.query(queries.waiting_prompts, kept) == 0


async def test_of_two_imports_at_once_one_is_refused_and_nothing_is_doubled(stored: OpenStore) -> None:
    document = tree(stored)
    importing = importer(stored)
    outcomes = await asyncio.gather(*(importing.store(document, destination(stored)) for _ in range(2)), return_exceptions=True)
    [refused] = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert isinstance(refused, SessionExists) and document.info.id in refused.message
    assert len(await stored.store.messages(document.info.id)) == len(document.messages)
    assert await importing.stored([document.info.id, "ses_none"]) == {document.info.id}


async def test_a_child_that_exists_keeps_the_whole_tree_out(stored: OpenStore) -> None:
    document = tree(stored)
    await importer(stored).store(SessionDocument(**dict(document.children[0])), destination(stored))
    with pytest.raises(SessionExists):
        await importer(stored).store(document, destination(stored))
    assert await importer(stored).stored([document.info.id, document.children[1].info.id]) == frozenset()


async def test_a_full_disk_or_project_stores_nothing(stored: OpenStore) -> None:
    document = tree(stored)
    with pytest.raises(ProjectFull):
        await importer(stored, most=1).store(await filled(stored, document), destination(stored))
    stored.database.is_full = True
    with pytest.raises(StorageError):
        await importer(stored).store(document, destination(stored))
    stored.database.is_full = False
    assert await importer(stored).stored([document.info.id]) == frozenset()
    assert await importer(stored).store(document, destination(stored))


async def filled(stored: OpenStore, document: SessionDocument) -> SessionDocument:
    """The project has something in it."""
    await stored.put(user(text("x" * 100)))
    return document
