"""Export and import over HTTP, in SQLite and PostgreSQL: what is exported can be imported, elsewhere or here with new ids."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from postgres import PostgresServer, migrated
from running_app import RunningApp, running_app
from sqlalchemy import Engine, event
from user_logins import user

from app.transfer.exports import PAGE_MESSAGES

WRITES = [
    [{"reasoning": "Hm."}, {"tool": "write", "args": {"filePath": "b.txt", "content": "new\n"}}],
    [{"text": "Grüße, 世界 👋"}],
]
IMAGE = {"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,iVBORw0KGgo="}
ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]


NewDatabase = Callable[[], dict[str, Any]]
"""The settings of a server with a database of its own."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> NewDatabase:
    if request.param == "sqlite":
        return dict
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return lambda: {"database_url": migrated(postgres)}


@pytest.fixture
async def app(tmp_path: Path, database: NewDatabase) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path / "one", turns=WRITES, **database()) as running:
        yield running


@pytest.fixture
async def other(tmp_path: Path, database: NewDatabase) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path / "other", turns=[[{"text": "Going on."}]], **database()) as running:
        yield running


async def session_with_a_file(app: RunningApp) -> dict[str, Any]:
    session = await app.create_session(title="Écrire", permission=ALLOW, metadata={"ticket": 7})
    await app.post(f"/session/{session['id']}/message", {"parts": [{"type": "text", "text": "Write b.txt"}, IMAGE]})
    return session


async def exported(app: RunningApp, session_id: str, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await app.get(f"/session/{session_id}/export", params=query)
    return found


async def test_another_server_shows_what_was_exported_and_goes_on_with_it(app: RunningApp, other: RunningApp) -> None:
    session = await session_with_a_file(app)
    path = f"/session/{session['id']}"
    document = await exported(app, session["id"])
    assert document["info"] == await app.get(path)
    assert document["messages"] == await app.messages(session["id"]) and len(document["messages"]) == 3
    assert document["diff"] == await app.get(f"{path}/diff") and document["todo"] == []
    assert "children" not in document
    imported = await other.post("/session/import", deepcopy(document))
    assert imported["sessions"] == [session["id"]] and imported["notes"] == []
    theirs = await exported(other, session["id"])
    assert theirs["messages"] == document["messages"] and theirs["diff"] == document["diff"]
    here = {"directory": str(other.directory), "projectID": (await other.get("/project/current"))["id"]}
    assert theirs["info"] == {**document["info"], **here} == imported["info"]
    answer = await other.prompt(session["id"], "And now?")
    assert answer["parts"][1]["text"] == "Going on."
    assert "Write b.txt" in json.dumps(other.provider.requests[0].messages, default=str)
    assert await other.get("/session/status") == {}


async def test_a_second_import_is_refused_and_one_with_new_ids_is_not(app: RunningApp) -> None:
    session = await session_with_a_file(app)
    document = await exported(app, session["id"])
    refused = await app.post("/session/import", document, expect=409)
    assert refused["name"] == "SessionExistsError" and refused["data"]["sessionIDs"] == [session["id"]]
    async with app.events() as events:
        imported = await app.post("/session/import", document, params={"ids": "new"})
        assert (await events.until("session.created")).properties["info"] == imported["info"]
    copy = await exported(app, imported["info"]["id"])
    old = json.dumps(document)
    for message, original in zip(copy["messages"], document["messages"], strict=True):
        assert message["info"]["id"] not in old and message["info"]["sessionID"] == imported["info"]["id"]
        assert [part["type"] for part in message["parts"]] == [part["type"] for part in original["parts"]]
        for part in message["parts"]:
            assert part["id"] not in old and part["messageID"] == message["info"]["id"]
    assert copy["messages"][1]["info"]["parentID"] == copy["messages"][0]["info"]["id"]
    assert [each["id"] for each in await app.get("/session")] == [imported["info"]["id"], session["id"]]
    assert await exported(app, session["id"]) == document, "the original is as it was"


async def test_children_come_along_and_are_named_anew(tmp_path: Path, database: NewDatabase) -> None:
    turns = [
        [{"tool": "task", "args": {"description": "look", "prompt": "Look", "subagent_type": "general"}}],
        [{"text": "Looked."}],
        [{"text": "Done."}],
    ]
    async with running_app(tmp_path, turns=turns, **database()) as app:
        session = await app.create_session(permission=ALLOW)
        await app.prompt(session["id"], "Delegate")
        document = await exported(app, session["id"], children=True)
        [child] = document["children"]
        assert child["info"]["parentID"] == session["id"] and len(child["messages"]) == 2
        imported = await app.post("/session/import", document, params={"ids": "new"})
        copy = await exported(app, imported["info"]["id"], children=True)
        new_child = copy["children"][0]["info"]["id"]
        assert imported["sessions"] == [copy["info"]["id"], new_child]
        assert child["info"]["id"] not in json.dumps(copy) and session["id"] not in json.dumps(copy)
        [call] = [part for part in copy["messages"][1]["parts"] if part["type"] == "tool"]
        assert call["state"]["metadata"]["sessionId"] == new_child and new_child in call["state"]["output"]
        assert [each["id"] for each in await app.get(f"/session/{copy['info']['id']}/children")] == [new_child]


async def test_a_child_alone_has_no_parent_and_with_it_stays_within_its_rules(app: RunningApp, other: RunningApp) -> None:
    denied = {"permission": "bash", "pattern": "*", "action": "deny"}
    parent = await app.create_session(permission=[denied])
    child = await app.create_session(parentID=parent["id"])
    document = await exported(app, child["id"])
    document["info"]["share"] = {"url": "https://elsewhere.example/s/1"}
    imported = await other.post("/session/import", document)
    assert "parentID" not in imported["info"] and "share" not in imported["info"]
    assert len(imported["notes"]) == 2 and parent["id"] in imported["notes"][0] and "elsewhere" in imported["notes"][1]
    document = await exported(app, parent["id"], children=True)
    document["children"][0]["info"]["permission"] = ALLOW
    imported = await app.post("/session/import", document, params={"ids": "new"})
    assert (await app.get(f"/session/{imported['sessions'][1]}"))["permission"][-1] == denied


async def test_a_revert_holds_where_its_snapshot_is_and_hides_messages_elsewhere(app: RunningApp, other: RunningApp) -> None:
    session = await session_with_a_file(app)
    path = f"/session/{session['id']}"
    [prompt, *_] = await app.messages(session["id"])
    reverted = await app.post(f"{path}/revert", {"messageID": prompt["info"]["id"]})
    assert reverted["revert"]["snapshot"] and not (app.directory / "b.txt").exists()
    document = await exported(app, session["id"])
    there = await other.post("/session/import", deepcopy(document))
    assert there["info"]["revert"] == {"messageID": prompt["info"]["id"]} and "snapshot" in there["notes"][0]
    shown = await other.post(f"{path}/unrevert")
    assert "revert" not in shown and len(await other.messages(session["id"])) == 3
    here = await app.post("/session/import", document, params={"ids": "new"})
    assert here["info"]["revert"]["snapshot"] == reverted["revert"]["snapshot"] and here["notes"] == []
    await app.post(f"/session/{here['info']['id']}/unrevert")
    assert (app.directory / "b.txt").read_text() == "new\n"


def spoilt(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = deepcopy(document)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    target: Any = copy
    for step in way:
        target = target[step]
    target[last] = value
    return copy


WRONG = {
    "info/id": (7, "info.id"),
    "info/time": ({}, "info.time.created"),
    "info/title": ("x" * 1_000_001, "info.title"),
    "messages/1/info/role": ("robot", "messages[1].info"),
    "messages/1/info/parentID": (None, "messages[1].info.parentID"),
    "messages/1/info/sessionID": ("ses_other", "messages[1].info.sessionID"),
    "messages/1/info/id": ("../x", "messages[1].info.id"),
    "messages/1/parts/2/type": ("telepathy", "messages[1].parts[2]"),
    "messages/1/parts/2/state/status": ("lost", "messages[1].parts[2].state"),
    "messages/1/parts/2/state/output": ({}, "messages[1].parts[2].state.output"),
    "messages/1/parts/2/tool": (3, "messages[1].parts[2].tool"),
    "messages/1/parts/2/messageID": ("msg_other", "messages[1].parts[2].messageID"),
    "messages/1/parts/0/snapshot": ("x\0", "messages[1].parts[0].snapshot"),
    "messages/1": ([], "messages[1]"),
    "messages": ({"a": 1}, "messages"),
    "todo": ([{"content": 1}], "todo[0].content"),
    "children": ([{}], "children[0]"),
}


async def test_what_is_wrong_is_named_by_its_path_and_nothing_is_stored(app: RunningApp, other: RunningApp) -> None:
    document = await exported(app, (await session_with_a_file(app))["id"])
    assert document["messages"][1]["parts"][2]["type"] == "tool"
    twice = deepcopy(document)
    twice["messages"].append(twice["messages"][0])
    wrong = {path: (spoilt(document, path, value), named) for path, (value, named) in WRONG.items()}
    for path, (sent, named) in {**wrong, "twice": (twice, "messages[3].info.id")}.items():
        for ids in ("keep", "new"):
            if ids == "new" and path in ("messages/1/info/id", "twice"):
                continue  # these get other ids
            refused = await other.post("/session/import", sent, params={"ids": ids}, expect=400)
            [issue] = refused["errors"]
            assert issue["message"].startswith(f"{named}: "), (path, ids, issue)
            dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in issue["path"])
            assert dotted == f".{named}", (path, issue)
    for body in ([], "x", {"info": {}}, {"messages": []}):
        await other.post("/session/import", body, expect=400)
    assert await other.get("/session") == []
    await other.post("/session/import", document)


LISTS = {
    "messages": "messages",
    "messages/1/parts": "messages[1].parts",
    "todo": "todo",
    "diff": "diff",
    "children": "children",
    "children/0/messages": "children[0].messages",
    "children/0/messages/0/parts": "children[0].messages[0].parts",
    "children/0/todo": "children[0].todo",
    "children/0/diff": "children[0].diff",
}


@pytest.mark.parametrize("ids", ["keep", "new"])
async def test_what_is_to_be_a_list_is_one_and_all_but_messages_and_parts_may_be_left_out(
    app: RunningApp, other: RunningApp, ids: str
) -> None:
    session = await session_with_a_file(app)
    child = await app.create_session(parentID=session["id"])
    await app.prompt(child["id"], "Hi", noReply=True)
    document = await exported(app, session["id"], children=True)

    async def refused(sent: dict[str, Any]) -> str:
        [issue] = (await other.post("/session/import", sent, params={"ids": ids}, expect=400))["errors"]
        return str(issue["message"])

    for path, named in LISTS.items():
        for wrong in ({}, "", 0, False, None, "[]", {"0": {}}):
            assert (await refused(spoilt(document, path, wrong))).startswith(f"{named}: "), wrong
    bare: dict[str, Any] = {"info": document["info"], "messages": [dict(message) for message in document["messages"]]}
    await other.post("/session/import", {"info": document["info"]}, params={"ids": ids}, expect=400)
    parts = bare["messages"][1].pop("parts")
    assert (await refused(bare)).startswith("messages[1].parts: ")
    assert await other.get("/session") == [], "nothing is stored of what is refused"
    bare["messages"][1]["parts"] = parts
    bare["messages"][2]["parts"] = []
    for sent in (bare, document) if ids == "new" else (bare,):
        imported = await other.post("/session/import", sent, params={"ids": ids})
        assert len(await other.messages(imported["info"]["id"])) == 3


async def test_limits_are_of_the_document_and_its_parts(tmp_path: Path, app: RunningApp) -> None:
    document = await exported(app, (await session_with_a_file(app))["id"])
    async with running_app(tmp_path / "small", max_body_bytes=1000, max_part_bytes=2000, max_import_bytes=100_000) as small:
        large = spoilt(document, "messages/0/parts/0/text", "x" * 3000)
        refused = await small.post("/session/import", large, expect=413)
        assert refused["data"]["message"].startswith("messages[0].parts[0]: ")
        larger = spoilt(document, "messages/0/parts/0/text", "x" * 100_000)
        refused = await small.post("/session/import", larger, expect=413)
        assert "OPENSESSION_MAX_IMPORT_BYTES" in refused["data"]["message"]
        assert await small.get("/session") == []
        await small.post("/session/import", document)


async def test_an_import_belongs_to_who_imports_it_and_stays_within_their_roots(
    tmp_path: Path, app: RunningApp, database: NewDatabase
) -> None:
    document = await exported(app, (await session_with_a_file(app))["id"])
    document["info"]["owner"] = "bert"
    async with running_app(tmp_path / "users", **database()) as shared:
        async with user(shared, "anna") as anna, user(shared, "bert") as bert:
            imported = await anna.post("/session/import", document)
            assert imported["info"]["owner"] == "anna"
            assert [each["id"] for each in await anna.get("/session")] == [document["info"]["id"]]
            assert await bert.get("/session") == []
            await bert.get(f"/session/{document['info']['id']}/export", expect=404)
            await anna.post("/session/import", document, params={"directory": "/etc"}, expect=403)
            assert "owner" not in await exported(anna, document["info"]["id"])


@contextmanager
def held_at_its_second_page() -> Iterator[tuple[threading.Event, threading.Event]]:
    """An export waits there. The first event is set when it does; setting the second lets it go on."""
    reached, released, pages = threading.Event(), threading.Event(), 0

    def hold(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        nonlocal pages
        pages += "message.seq >" in statement
        if pages == 2 and not reached.is_set():
            reached.set()
            assert released.wait(60)

    event.listen(Engine, "before_cursor_execute", hold)
    try:
        yield reached, released
    finally:
        released.set()
        event.remove(Engine, "before_cursor_execute", hold)


async def test_an_export_is_of_one_moment(app: RunningApp) -> None:
    """What changes between two of its pages is not in it."""
    session = await app.create_session()
    for number in range(PAGE_MESSAGES + 2):
        last = await app.prompt(session["id"], f"Number {number}", noReply=True)
    document = await exported(app, session["id"])
    with held_at_its_second_page() as (reached, released):
        export = asyncio.create_task(exported(app, session["id"]))
        assert await asyncio.to_thread(reached.wait, 60)
        await app.call("DELETE", f"/session/{session['id']}/message/{last['info']['id']}")
        await app.prompt(session["id"], "A later one", noReply=True)
        released.set()
        assert await export == document
    later = await exported(app, session["id"])
    assert later["messages"][:-1] == document["messages"][:-1] and later["messages"][-1]["parts"][0]["text"] == "A later one"


async def test_a_session_that_streams_is_exported_and_its_import_is_finished(
    tmp_path: Path, other: RunningApp, database: NewDatabase
) -> None:
    asks = [[{"tool": "bash", "args": {"command": "echo x", "description": "echo"}}]]
    async with running_app(tmp_path / "asking", turns=asks, **database()) as app:
        session = await app.create_session(permission=[{"permission": "bash", "pattern": "*", "action": "ask"}])
        async with app.events() as events:
            await app.prompt_async(session["id"], "Run it")
            await events.until("permission.asked")
        document = await exported(app, session["id"])
        await app.post(f"/session/{session['id']}/abort")
    assert "completed" not in document["messages"][1]["info"]["time"]
    await other.post("/session/import", document)
    _, answer = await other.messages(session["id"])
    assert answer["info"]["error"]["name"] == "MessageAbortedError" and "completed" in answer["info"]["time"]
    assert [part["state"]["status"] for part in answer["parts"] if part["type"] == "tool"] == ["error"]
    assert (await other.prompt(session["id"], "Go on"))["info"]["finish"] == "stop"


async def test_ten_imports_at_one_moment_store_one(other: RunningApp, app: RunningApp) -> None:
    document = await exported(app, (await session_with_a_file(app))["id"])
    answers = await asyncio.gather(*(other.client.post("/session/import", json=document) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert len(await other.messages(document["info"]["id"])) == 3
