"""Where documents are read from, what the importer stores, and that it stores all or nothing."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import orjson
import pytest
from conversation import assistant, text, tool, user
from session_parts import PLACE, Sessions
from web_page import web_page

from app.record.engine import StorageError
from app.record.repositories import session_rows
from app.schema.message import MessageWithParts
from app.schema.session import FileDiff, Todo
from app.sessions.service import new_session
from app.sessions.usage import ProjectFull, ProjectQuota
from app.tools.web import Address, PinnedRequests
from app.transfer.document import SessionDocument, SessionHistory
from app.transfer.importing import Destination, Importer, SessionExists, UnreadableSource, read_source

DOCUMENT = '{"info": {}}'
LARGE = len(DOCUMENT)


async def at_loopback(_host: str, _port: int) -> list[Address]:
    return [ip_address("127.0.0.1")]


PUBLIC = PinnedRequests(resolve=at_loopback)
ALL = PinnedRequests(allow_private=True)


async def refused(source: str, said: str, most: int = 1000, requests: PinnedRequests = ALL) -> None:
    with pytest.raises(UnreadableSource, match=said):
        await read_source(source, requests, most)


async def test_a_file_is_read_within_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(DOCUMENT)
    assert await read_source(str(file), PUBLIC, LARGE) == DOCUMENT.encode()
    await refused(str(file), "OPENSESSION_MAX_IMPORT_BYTES", LARGE - 1)
    await refused(str(tmp_path), "Is a directory")


async def test_a_public_address_is_read_within_its_limit() -> None:
    async with web_page(DOCUMENT) as page:
        for host in ("127.0.0.1", "public.example"):
            private = r"not a public address.*OPENSESSION_ALLOW_PRIVATE_ADDRESSES"
            await refused(page.url.replace("127.0.0.1", host), private, requests=PUBLIC)
        assert page.requests == [], "it is not asked"
        assert await read_source(page.url, ALL, LARGE) == DOCUMENT.encode()
        await refused(page.url, "larger than", LARGE - 1)
        page.status = "404 Not Found"
        await refused(page.url, "404")


async def test_a_share_link_is_read_as_a_document() -> None:
    async with web_page('{"session": {"id": "ses_1"}, "messages": []}') as page:
        link = page.url.replace("/rules.md", f"/team/s/{'0a' * 20}")
        document = orjson.loads(await read_source(link, ALL, 1000))
        assert page.requests[0].startswith(f"GET /team/s/{'0a' * 20}/session ")
        assert document == {"info": {"id": "ses_1", "projectID": "", "directory": ""}, "messages": []}
        for other in ("<html>", "[]", '{"session": 1}', "{}"):
            page.body = other
            await refused(link, "no share link")


HERE = Destination(PLACE, "")


def importer(sessions: Sessions, most: int = 2**40) -> Importer:
    return Importer(sessions.store, ProjectQuota(sessions.storage.database, most))


def history(*messages: MessageWithParts, parent: str | None = None) -> SessionHistory:
    """Of a session that nobody has stored."""
    session = new_session(PLACE, "Old", parent)
    session.project_id, session.directory, session.time.compacting = "elsewhere", "/elsewhere", 5
    of = {"session_id": session.id}

    def moved(value: Any) -> Any:
        return value.model_copy(update=of)

    own = [MessageWithParts(info=moved(each.info), parts=[moved(part) for part in each.parts]) for each in messages]
    return SessionHistory(info=session, messages=own)


@pytest.fixture
def document() -> SessionDocument:
    """With a child and a grandchild."""
    question = user(text("Grüße, 世界"))
    root = history(question, assistant(question, text("Hello."), tool()))
    root.todo = [Todo(content="tidy", status="pending", priority="high", id="1")]
    root.diff = [FileDiff(file="a.txt", before="", after="x\n", additions=1, deletions=0)]
    child = history(user(text("Look")), parent=root.info.id)
    return SessionDocument(**dict(root), children=[child, history(parent=child.info.id)])


async def test_a_child_that_exists_keeps_the_whole_tree_out(sessions: Sessions, document: SessionDocument) -> None:
    await importer(sessions).store(SessionDocument(**dict(document.children[0])), HERE)
    with pytest.raises(SessionExists):
        await importer(sessions).store(document, HERE)
    assert await sessions.store.query(session_rows.owners, [document.info.id, document.children[1].info.id]) == {}


async def test_a_full_disk_or_project_stores_nothing(sessions: Sessions, document: SessionDocument) -> None:
    await sessions.put(user(text("x" * 100)))
    with pytest.raises(ProjectFull):
        await importer(sessions, most=1).store(document, HERE)
    sessions.database.full = True
    with pytest.raises(StorageError):
        await importer(sessions).store(document, HERE)
    sessions.database.full = False
    assert await sessions.store.query(session_rows.owners, [document.info.id]) == {}
    assert await importer(sessions).store(document, HERE)
