"""Export and import over HTTP, in SQLite and PostgreSQL: what is exported can be imported, elsewhere or here with new ids."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from postgres import PostgresServer, migrated
from running_app import RunningApp, running_app, text_part
from sqlalchemy import Engine, event
from turns import bash, call, say, task, texts, tools
from user_logins import user

from app.transfer.exports import PAGE_MESSAGES

IMAGE = {"type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,iVBORw0KGgo="}
ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]
DENIED = {"permission": "bash", "pattern": "*", "action": "deny"}
NEW = {"params": {"ids": "new"}}

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
    async with running_app(tmp_path / "one", **database()) as running:
        yield running


@pytest.fixture
async def other(tmp_path: Path, database: NewDatabase) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path / "other", turns=[[say("Going on.")]], **database()) as running:
        yield running


async def exported(app: RunningApp, session_id: str, **query: Any) -> dict[str, Any]:
    return await app.get(f"/session/{session_id}/export", params=query)


async def imported(app: RunningApp, document: Any, *, expect: int = 200, **options: Any) -> Any:
    return await app.post("/session/import", document, expect=expect, **options)


async def with_a_file(app: RunningApp) -> dict[str, Any]:
    """A session with a turn that wrote one, as it is exported."""
    app.provider.add([{"reasoning": "Hm."}, call("write", filePath="b.txt", content="new\n")], [say("Grüße, 世界 👋")])
    session = await app.create_session(title="Écrire", permission=ALLOW, metadata={"ticket": 7})
    await app.post(f"/session/{session['id']}/message", {"parts": [text_part("Write b.txt"), IMAGE]})
    return await exported(app, session["id"])


async def test_another_server_shows_what_was_exported_and_goes_on_with_it(app: RunningApp, other: RunningApp) -> None:
    document = await with_a_file(app)
    session_id = document["info"]["id"]
    path = f"/session/{session_id}"
    assert document["info"] == await app.get(path)
    assert document["messages"] == await app.messages(session_id) and len(document["messages"]) == 3
    assert document["diff"] == await app.get(f"{path}/diff") and document["todo"] == []
    assert "children" not in document
    answers = await asyncio.gather(*(other.client.post("/session/import", json=document) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9, "of ten at one moment one is stored"
    [first] = [answer.json() for answer in answers if answer.is_success]
    assert (first["sessions"], first["notes"]) == ([session_id], [])
    theirs = await exported(other, session_id)
    assert theirs["messages"] == document["messages"] and theirs["diff"] == document["diff"]
    here = {"directory": str(other.directory), "projectID": (await other.get("/project/current"))["id"]}
    assert theirs["info"] == {**document["info"], **here} == first["info"]
    assert texts(await other.prompt(session_id, "And now?")) == ["Going on."]
    assert "Write b.txt" in json.dumps(other.provider.requests[0].messages, default=str)
    assert await other.get("/session/status") == {}


async def test_what_javascript_cut_and_an_editor_marked_is_imported(app: RunningApp, other: RunningApp) -> None:
    """OpenCode cuts long lines between the halves of a character, and writes the half."""
    document = await with_a_file(app)
    document["messages"][0]["parts"][0]["text"] = "\\ud83d 👋 cut \ud83d"
    body = b"\xef\xbb\xbf" + json.dumps(document).encode()
    made = await other.client.post("/session/import", content=body, headers={"content-type": "application/json"})
    assert made.status_code == 200, made.text
    first = (await other.messages(made.json()["info"]["id"]))[0]["parts"][0]
    assert first["text"] == "\\ud83d 👋 cut \ufffd"


async def test_the_rules_of_many_imported_sessions_hold_nobody_up(app: RunningApp) -> None:
    document = await with_a_file(app)
    info, history = document["info"], {"messages": [], "todo": [], "diff": []}
    rules = [[{**DENIED, "pattern": f"*{child}*{each}*", "action": "ask"} for each in range(220)] for child in range(8)]
    ids = [info["id"], *(f"ses_{child}" for child in range(1, 8))]
    infos = [{**info, "id": id_, "parentID": ids[0], "permission": own} for id_, own in zip(ids, rules, strict=True)]
    document |= {"info": {**infos[0], "parentID": None}, "children": [{"info": each, **history} for each in infos[1:]]}
    began = time.thread_time()
    made = await imported(app, document, **NEW)
    assert time.thread_time() - began < 0.5 and len(made["sessions"]) == 8


async def test_a_second_import_is_refused_and_one_with_new_ids_is_not(app: RunningApp) -> None:
    document = await with_a_file(app)
    original = document["info"]["id"]
    refused = await imported(app, document, expect=409)
    assert refused["name"] == "SessionExistsError" and refused["data"]["sessionIDs"] == [original]
    async with app.events() as events:
        made = await imported(app, document, **NEW)
        assert (await events.until("session.created")).properties["info"] == made["info"]
    copy, old = await exported(app, made["info"]["id"]), json.dumps(document)
    for message, before in zip(copy["messages"], document["messages"], strict=True):
        assert message["info"]["id"] not in old and message["info"]["sessionID"] == made["info"]["id"]
        assert [part["type"] for part in message["parts"]] == [part["type"] for part in before["parts"]]
        for part in message["parts"]:
            assert part["id"] not in old and part["messageID"] == message["info"]["id"]
    assert copy["messages"][1]["info"]["parentID"] == copy["messages"][0]["info"]["id"]
    assert [each["id"] for each in await app.get("/session")] == [made["info"]["id"], original]
    assert await exported(app, original) == document, "the original is as it was"


async def test_children_come_along_and_are_named_anew_and_stay_within_the_rules(app: RunningApp, other: RunningApp) -> None:
    app.provider.add([task()], [say("Looked.")], [say()])
    session = await app.create_session(permission=ALLOW)
    await app.prompt(session["id"], "Delegate")
    document = await exported(app, session["id"], children=True)
    [child] = document["children"]
    assert child["info"]["parentID"] == session["id"] and len(child["messages"]) == 2
    made = await imported(app, document, **NEW)
    copy = await exported(app, made["info"]["id"], children=True)
    new_child = copy["children"][0]["info"]["id"]
    assert made["sessions"] == [copy["info"]["id"], new_child]
    assert child["info"]["id"] not in json.dumps(copy) and session["id"] not in json.dumps(copy)
    [delegated] = tools(copy["messages"])
    assert delegated["state"]["metadata"]["sessionId"] == new_child and new_child in delegated["state"]["output"]
    assert [each["id"] for each in await app.get(f"/session/{copy['info']['id']}/children")] == [new_child]
    document["info"]["permission"], child["info"]["permission"] = [DENIED], ALLOW
    made = await imported(app, document, **NEW)
    assert (await app.get(f"/session/{made['sessions'][1]}"))["permission"][-1] == DENIED
    child["info"]["share"] = {"url": "https://elsewhere.example/s/1"}
    alone = await imported(other, child)
    assert "parentID" not in alone["info"] and "share" not in alone["info"]
    assert len(alone["notes"]) == 2 and session["id"] in alone["notes"][0] and "elsewhere" in alone["notes"][1]


async def test_a_revert_holds_where_its_snapshot_is_and_hides_messages_elsewhere(app: RunningApp, other: RunningApp) -> None:
    written = await with_a_file(app)
    session_id, prompt = written["info"]["id"], {"messageID": written["messages"][0]["info"]["id"]}
    reverted = await app.post(f"/session/{session_id}/revert", prompt)
    assert reverted["revert"]["snapshot"] and not (app.directory / "b.txt").exists()
    document = await exported(app, session_id)
    there = await imported(other, document)
    assert there["info"]["revert"] == prompt and "snapshot" in there["notes"][0]
    shown = await other.post(f"/session/{session_id}/unrevert")
    assert "revert" not in shown and len(await other.messages(session_id)) == 3
    here = await imported(app, document, **NEW)
    assert here["info"]["revert"]["snapshot"] == reverted["revert"]["snapshot"] and here["notes"] == []
    await app.post(f"/session/{here['info']['id']}/unrevert")
    assert (app.directory / "b.txt").read_text() == "new\n"


def spoilt(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A path is written as errors name it: `messages[1].parts`."""
    copy = deepcopy(document)
    *way, last = [int(step) if step.isdigit() else step for step in path.replace("[", ".").replace("]", "").split(".")]
    target: Any = copy
    for step in way:
        target = target[step]
    target[last] = value
    return copy


WRONG: list[tuple[str, Any, str]] = [
    ("info.id", 7, ""),
    ("info.time", {}, ".created"),
    ("info.time.created", "9" * 30, ""),
    ("info.time.updated", 2**63, ""),
    ("info.time.updated", 253_402_300_800_000, ""),
    ("info.time.updated", -1, ""),
    ("info.title", "x" * 1_000_001, ""),
    ("messages[1].info.role", "robot", "messages[1].info"),
    ("messages[1].info.parentID", None, ""),
    ("messages[1].info.sessionID", "ses_other", ""),
    ("messages[1].info.cost", "nan", ""),
    ("messages[1].info.time.created", "-" + "9" * 30, ""),
    ("messages[1].info.id", "../x", ""),
    ("messages[1].parts[2].type", "telepathy", "messages[1].parts[2]"),
    ("messages[1].parts[2].state.status", "lost", "messages[1].parts[2].state"),
    ("messages[1].parts[2].state.output", {}, ""),
    ("messages[1].parts[2].tool", 3, ""),
    ("messages[1].parts[2].messageID", "msg_other", ""),
    ("messages[1].parts[0].snapshot", "x\0", ""),
    ("messages[1]", [], ""),
    ("messages", {"a": 1}, ""),
    ("todo", [{"content": 1}], "[0].content"),
    ("children", [{}], "[0]"),
]
"""What stands where, and what the error names: the same, something below it, or the whole that it is in."""
LISTS = ["messages", "messages[1].parts", "todo", "diff", "children", "children[0].messages"]
LISTS += ["children[0].messages[0].parts", "children[0].todo", "children[0].diff"]


@pytest.mark.parametrize("ids", ["keep", "new"])
async def test_what_is_wrong_is_named_by_its_path_and_nothing_is_stored(app: RunningApp, other: RunningApp, ids: str) -> None:
    session_id = (await with_a_file(app))["info"]["id"]
    child = await app.create_session(parentID=session_id)
    await app.prompt(child["id"], "Hi", noReply=True)
    document, query = await exported(app, session_id, children=True), {"params": {"ids": ids}}
    assert document["messages"][1]["parts"][2]["type"] == "tool"

    async def named(sent: dict[str, Any]) -> str:
        [issue] = (await imported(other, sent, expect=400, **query))["errors"]
        way = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in issue["path"])[1:]
        assert issue["message"].startswith(f"{way}: "), issue
        return way

    twice = {**document, "messages": [*document["messages"], document["messages"][0]]}
    for path, value, name in WRONG:
        if ids == "keep" or path != "messages[1].info.id":  # with new ones it gets another
            assert await named(spoilt(document, path, value)) == (name if name.startswith("messages") else path + name), path
    assert ids == "new" or await named(twice) == "messages[3].info.id"
    for path in LISTS:
        for wrong in ({}, "", 0, False, None, "[]", {"0": {}}):
            assert await named(spoilt(document, path, wrong)) == path, wrong
    bare = deepcopy({"info": document["info"], "messages": document["messages"]})
    parts = bare["messages"][1].pop("parts")
    assert await named(bare) == "messages[1].parts"
    for body in ([], "x", {"info": {}}, {"messages": []}, {"info": document["info"]}):
        await imported(other, body, expect=400, **query)
    assert await other.get("/session") == []
    bare["messages"][1]["parts"], bare["messages"][2]["parts"] = parts, []
    for sent in (bare, document) if ids == "new" else (bare,):  # all but messages and parts may be left out
        made = await imported(other, sent, **query)
        assert len(await other.messages(made["info"]["id"])) == 3


async def test_limits_are_of_the_document_and_its_parts(tmp_path: Path, app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    document = await with_a_file(app)
    monkeypatch.setattr("app.transfer.document.MAX_SESSION_BYTES", 10_000)
    async with running_app(tmp_path / "small", max_body_bytes=1000, max_part_bytes=2000, max_import_bytes=100_000) as small:
        for length, said in ((3000, "messages[0].parts[0]: "), (100_000, "OPENSESSION_MAX_IMPORT_BYTES")):
            large = spoilt(document, "messages[0].parts[0].text", "x" * length)
            assert said in (await imported(small, large, expect=413))["data"]["message"]
        revert = {"messageID": document["messages"][0]["info"]["id"], "diff": "x" * 10_000}
        said = (await imported(small, spoilt(document, "info.revert", revert), expect=413))["data"]["message"]
        assert said.startswith("info: ")
        assert await small.get("/session") == []
        await imported(small, document)


async def test_an_import_belongs_to_who_imports_it_and_stays_within_their_roots(app: RunningApp, other: RunningApp) -> None:
    document = await with_a_file(app)
    document["info"]["owner"] = "bert"
    async with user(other, "anna") as anna, user(other, "bert") as bert:
        assert (await imported(anna, document))["info"]["owner"] == "anna"
        assert [each["id"] for each in await anna.get("/session")] == [document["info"]["id"]]
        assert await bert.get("/session") == []
        await bert.get(f"/session/{document['info']['id']}/export", expect=404)
        await imported(anna, document, params={"directory": "/etc"}, expect=403)
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
    assert later["messages"][:-1] == document["messages"][:-1] and texts(later["messages"][-1]) == ["A later one"]


async def test_a_session_that_streams_is_exported_and_its_import_is_finished(app: RunningApp, other: RunningApp) -> None:
    app.provider.add([bash("echo x")])
    session = await app.create_session(permission=[{**DENIED, "action": "ask"}])
    async with app.events() as events:
        await app.prompt_async(session["id"], "Run it")
        await events.until("permission.asked")
    document = await exported(app, session["id"])
    await app.post(f"/session/{session['id']}/abort")
    assert "completed" not in document["messages"][1]["info"]["time"]
    await imported(other, document)
    _, answer = await other.messages(session["id"])
    assert answer["info"]["error"]["name"] == "MessageAbortedError" and "completed" in answer["info"]["time"]
    assert [part["state"]["status"] for part in tools(answer)] == ["error"]
    assert (await other.prompt(session["id"], "Go on"))["info"]["finish"] == "stop"
