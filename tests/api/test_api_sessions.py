"""Sessions over HTTP: create, read, change, list, delete, fork. What is refused: test_api_refusals.py."""

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from database_meter import metered
from pydantic import TypeAdapter
from running_app import NO_TOKENS, RunningApp, running_app
from turns import call, say, texts

from app import __version__
from app.permissions.rules import evaluate
from app.schema.permission import Ruleset
from app.schema.session import Session
from app.sessions.store import Store

RULES: TypeAdapter[Ruleset] = TypeAdapter(Ruleset)


def rule(permission: str, pattern: str, action: str) -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": action}


def path_of(session: dict[str, Any]) -> str:
    return f"/session/{session['id']}"


async def titles(app: RunningApp, **query: Any) -> list[str]:
    return [session["title"] for session in await app.get("/session", params=query)]


async def action(app: RunningApp, session: dict[str, Any], permission: str) -> str:
    """What the session's own rules say."""
    rules = (await app.get(path_of(session)))["permission"]
    return evaluate(permission, "x", RULES.validate_python(rules)).action


def below(app: RunningApp, path: str) -> Path:
    directory = app.directory / path
    directory.mkdir(parents=True)
    return directory


async def test_a_created_session_is_complete_and_two_events_tell_of_it(app: RunningApp) -> None:
    async with app.events() as events:
        session = await app.post("/session")
        await events.until("session.updated")
    whole = {**session, "path": "", "cost": 0, "tokens": NO_TOKENS}
    told = [(event.type, event.properties["info"]) for event in events.seen[1:]]
    assert told == [("session.created", whole), ("session.updated", whole)]
    assert re.fullmatch(r"ses_[0-9a-f]{12}[0-9A-Za-z]{14}", session["id"])
    assert re.fullmatch(r"New session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", session["title"])
    assert re.fullmatch(r"[a-z]+-[a-z]+", session["slug"])
    assert re.fullmatch(r"[0-9a-f]{40}", session["projectID"])
    assert session["directory"] == str(app.directory) and session["version"] == __version__
    assert session["time"]["created"] == session["time"]["updated"]
    assert set(session) == {"id", "slug", "projectID", "directory", "title", "version", "time"}, "as in OpenCode 1.1"
    assert (await app.post("/session", params={"directory": str(below(app, "src/below"))}))["path"] == "src/below"
    assert await app.get(path_of(session)) == whole
    newer = await app.post("/session", {}, headers={"User-Agent": "opencode-client-python/0.2.0"})
    assert (newer["path"], newer["cost"]) == ("", 0), "a client that demands them gets them"
    for options in ({}, {"content": b""}, {"content": b"{}", "headers": {"content-type": "application/json"}}):
        assert (await app.call("POST", "/session", **options))["title"].startswith("New session - "), "without a body"


async def test_a_session_is_created_with_what_is_named(app: RunningApp) -> None:
    parent = await app.create_session()
    rules = [rule("bash", "*", "deny")]
    child = await app.create_session(parentID=parent["id"], permission=rules, unknown="dropped")
    assert child["title"].startswith("Child session - ") and child["parentID"] == parent["id"]
    assert child["permission"] == rules and "unknown" not in child
    assert (await app.create_session(title=""))["title"] == ""
    fields = {"agent": "plan", "model": {"providerID": "scripted", "id": "rules"}, "metadata": {"mine": [1]}}
    session = await app.create_session(**fields)
    forked = await app.post(f"{path_of(session)}/fork")
    assert [{key: each[key] for key in fields} for each in (session, forked)] == [fields, fields]
    changed = await app.call("PATCH", path_of(session), {"metadata": {"other": 2}})
    assert changed["metadata"] == {"other": 2} == (await app.get(path_of(session)))["metadata"]


async def test_renaming_and_archiving_do_not_touch(app: RunningApp) -> None:
    session = await app.create_session()
    renamed = await app.call("PATCH", path_of(session), {"title": "New é"})
    assert renamed == {**session, "title": "New é"}
    archived = await app.call("PATCH", path_of(session), {"time": {"archived": 123}})
    assert archived["time"] == {**session["time"], "archived": 123} and archived["title"] == "New é"
    assert await app.call("PATCH", path_of(session), {}) == archived == await app.get(path_of(session))


# Rules.


async def test_rules_are_set_behind_those_that_are_there_and_announced(app: RunningApp) -> None:
    first, second = rule("bash", "*", "ask"), rule("edit", "*", "deny")
    session = await app.create_session(permission=[first, second])
    third, again = rule("bash", "git *", "allow"), rule("bash", "*", "deny")
    async with app.events() as events:
        updated = await app.call("PATCH", path_of(session), {"permission": [again, third]})
        announced = (await events.until("session.updated")).properties["info"]
    assert updated["permission"] == [second, again, third] and updated["time"]["updated"] >= session["time"]["updated"]
    assert announced == updated == await app.get(path_of(session))
    for letter, status in (("a", 200), ("b", 413)):
        await app.call("PATCH", path_of(session), {"permission": [rule("bash", letter * 600_000, "ask")]}, expect=status)
    await app.post("/session", {"permission": [rule("bash", "a" * 1_000_000, "ask")]}, expect=413)
    await app.prompt(session["id"], "Hi", tools={"a" * 1_000_000: True}, expect=413)


async def test_a_session_below_another_has_its_rules_and_can_only_have_rights_taken_away(app: RunningApp) -> None:
    denied, asked = rule("edit", "*", "deny"), rule("bash", "*", "ask")
    parent = await app.create_session(permission=[denied])
    assert (await app.create_session(parentID=parent["id"]))["permission"] == [denied]
    child = await app.create_session(parentID=parent["id"], permission=[asked])
    assert asked in child["permission"]
    assert "permission" not in await app.create_session(parentID="ses_of_nobody")
    await app.call("PATCH", path_of(child), {"permission": [rule("edit", "*", "allow"), rule("webfetch", "*", "ask")]})
    assert [await action(app, child, name) for name in ("edit", "webfetch")] == ["deny", "ask"]
    lowest = await app.create_session(parentID=child["id"], permission=[rule("glob", "*", "allow")])
    async with app.events() as events:
        await app.call("PATCH", path_of(parent), {"permission": [rule("glob", "*", "deny")]})
        await events.until("session.updated", count=4)
    assert [await action(app, session, "glob") for session in (child, lowest)] == ["deny", "deny"], "taken from all below it"


# Listing.


async def test_newest_created_come_first_whatever_was_updated_up_to_a_limit(app: RunningApp) -> None:
    first, *_ = [await app.create_session(title=title) for title in "123"]
    await app.prompt(first["id"], "touched", noReply=True)
    assert await titles(app) == ["3", "2", "1"]
    counts = {"0": 1, "1": 1, "2": 2, "2.9": 2, "3": 3, "99999999999999999999": 3, "1e300": 3}
    assert {limit: len(await titles(app, limit=limit)) for limit in counts} == counts
    assert await titles(app, search="1", limit=1) == ["1"], "a filter comes before the limit"


async def test_only_roots_and_only_those_updated_since(app: RunningApp) -> None:
    root = await app.create_session(title="root")
    child = await app.create_session(title="child", parentID=root["id"])
    listed = {roots: await titles(app, roots=roots) for roots in ("true", "0", "false")}
    assert listed == {"true": ["root"], "0": ["root"], "false": ["child", "root"]} and len(await titles(app)) == 2
    updated = child["time"]["updated"]
    assert "child" in await titles(app, start=updated) and await titles(app, start=updated + 1) == []
    assert len(await titles(app, start="-1e400")) == 2 and await titles(app, start="1e400") == []


async def test_a_directory_selects_exactly_its_sessions(app: RunningApp) -> None:
    inside = below(app, "mit Leerzeichen und ü")
    encoded = {"x-opencode-directory": str(inside).replace(" ", "%20").replace("ü", "%C3%BC")}
    await app.create_session(title="top")
    assert (await app.post("/session", {"title": "inside"}, headers=encoded))["directory"] == str(inside)
    assert await titles(app) == ["inside", "top"]
    for directory in (str(inside), quote(str(inside), safe="")):  # OpenCode's newer SDK moves the header's value to the query
        assert await titles(app, directory=directory) == ["inside"]
    assert await titles(app, directory=str(app.directory)) == ["top"]
    assert len(await app.get("/session", headers=encoded)) == 2, "a header is of every request, and selects none"


async def test_a_search_in_titles(app: RunningApp) -> None:
    odd = "100% a_b \\ '\""
    for title in ("Hello World", odd, "GROSSE STRASSE", "école"):
        await app.create_session(title=title)
    found = {"HELLO": ["Hello World"], "straße": ["GROSSE STRASSE"], "ÉCOLE": ["école"], "a%b": [], "x" * 2_000: []}
    found |= {key: [odd] for key in ("100%", "a_b", "\\", "'\"")} | {"": ["école", "GROSSE STRASSE", odd, "Hello World"]}
    assert {search: await titles(app, search=search) for search in found} == found


async def test_a_title_is_changed_without_a_look_at_subagents(tmp_path: Path) -> None:
    """Others' changes wait meanwhile: of thousands that took seconds."""
    with metered() as spent:
        async with running_app(tmp_path) as app:
            session = await app.create_session()
            for _ in range(20):
                await app.create_session(parentID=session["id"])
            before = spent.copy()
            await app.call("PATCH", path_of(session), {"title": "New", "pinned": True})
            assert spent.since(before).read < 5_000


# Deleting and forks.


async def test_a_deleted_session_is_gone_with_all_below_it(app: RunningApp) -> None:
    parent = await app.create_session()
    children = [await app.create_session(parentID=parent["id"]) for _ in range(2)]
    assert [each["id"] for each in await app.get(f"{path_of(parent)}/children")] == [each["id"] for each in children[::-1]]
    for nothing in ("children", "todo", "diff", "message"):
        assert await app.get(f"{path_of(children[0])}/{nothing}") == []
    await app.prompt(children[0]["id"], "hi")
    async with app.events() as events:
        assert await app.call("DELETE", path_of(parent)) is True
        await events.until("session.deleted", count=3)
    deleted = [event.properties["info"]["id"] for event in events.of_type("session.deleted")]
    assert set(deleted) == {each["id"] for each in (parent, *children)} and deleted[-1] == parent["id"]
    for session in (parent, *children):
        for method, path in (("GET", ""), ("GET", "/message"), ("DELETE", "")):
            await app.call(method, f"{path_of(session)}{path}", expect=404)
    assert await app.get("/session") == []


async def test_a_tree_is_read_twice_to_be_deleted_however_large_it_is(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    root = await app.create_session()
    for _ in range(10):
        await app.create_session(parentID=root["id"])
    store, read = app.services.store, list[str]()

    async def session_tree(session_id: str) -> list[Session]:
        read.append(session_id)
        return await Store.session_tree(store, session_id)

    monkeypatch.setattr(store, "session_tree", session_tree)
    await app.call("DELETE", path_of(root))
    assert await app.get("/session") == [] and len(read) == 2


async def test_a_session_at_work_is_busy_and_deleting_it_stops_its_turn(app: RunningApp) -> None:
    app.provider.add([{"text": "never", "chunks": 1}, {"wait": asyncio.Event()}])
    session, _idle = await app.create_session(), await app.create_session()
    assert await app.get("/session/status") == {}
    async with app.events() as events:
        await app.prompt_async(session["id"], "hi")
        await events.until("message.part.updated", count=2)
        assert await app.get("/session/status") == {session["id"]: {"type": "busy"}}
        await app.call("DELETE", path_of(session))
        await events.until("session.deleted")
    assert await app.get("/session/status") == {}
    await app.get(path_of(session), expect=404)


async def test_a_fork_is_a_session_of_its_own_and_one_at_a_message_leaves_it_out(app: RunningApp) -> None:
    session = await app.create_session(title="T")
    for text in ("one", "two"):
        await app.prompt(session["id"], text)
    original = await app.messages(session["id"])
    fork = await app.post(f"{path_of(session)}/fork")
    assert fork["title"] == "T (fork #1)" and "parentID" not in fork
    assert list(map(texts, await app.messages(fork["id"]))) == list(map(texts, original))
    await app.prompt(fork["id"], "three")
    assert await app.messages(session["id"]) == original
    part = await app.post(f"{path_of(session)}/fork", {"messageID": original[2]["info"]["id"]})
    assert len(await app.messages(part["id"])) == 2


async def test_a_diff_is_of_the_session_or_of_one_prompt(app: RunningApp) -> None:
    session = await app.create_session(permission=[rule("edit", "*", "allow")])
    for name in ("one.txt", "two.txt"):
        app.provider.add([call("write", filePath=name, content="x\n")], [say()])
        await app.prompt(session["id"], name)
    first = (await app.messages(session["id"]))[0]["info"]["id"]
    assert {diff["file"] for diff in await app.get(f"{path_of(session)}/diff")} == {"one.txt", "two.txt"}
    [diff] = await app.get(f"{path_of(session)}/diff", params={"messageID": first})
    assert diff.pop("patch").endswith("@@ -0,0 +1 @@\n+x\n") and diff.pop("status") == "added"
    assert diff == {"file": "one.txt", "before": "", "after": "x\n", "additions": 1, "deletions": 0}
