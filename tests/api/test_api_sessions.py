"""Sessions over HTTP: create, read, rename, list, delete, fork, and what hangs on them."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from running_app import NO_TOKENS, RunningApp

from app import __version__
from app.permission.rules import evaluate
from app.schema.permission import Ruleset

UNKNOWN = "ses_nope"
RULES: TypeAdapter[Ruleset] = TypeAdapter(Ruleset)


async def titles(app: RunningApp, **query: Any) -> list[str]:
    return [session["title"] for session in await app.get("/session", params=query)]


def below(app: RunningApp) -> Path:
    directory = app.directory / "src" / "below"
    directory.mkdir(parents=True)
    return directory


async def test_a_created_session_is_complete(app: RunningApp) -> None:
    session = await app.post("/session")
    assert re.fullmatch(r"ses_[0-9a-f]{12}[0-9A-Za-z]{14}", session["id"])
    assert re.fullmatch(r"New session - \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", session["title"])
    assert re.fullmatch(r"[a-z]+-[a-z]+", session["slug"])
    assert re.fullmatch(r"[0-9a-f]{40}", session["projectID"])
    assert session["directory"] == str(app.directory) and session["version"] == __version__
    assert session["time"]["created"] == session["time"]["updated"]
    assert set(session) == {"id", "slug", "projectID", "directory", "title", "version", "time"}, "as in OpenCode 1.1"
    assert (await app.post("/session", params={"directory": str(below(app))}))["path"] == "src/below"
    assert await app.get(f"/session/{session['id']}") == {**session, "path": "", "cost": 0, "tokens": NO_TOKENS}


async def test_a_client_that_demands_a_path_gets_it(app: RunningApp) -> None:
    response = await app.client.post("/session", json={}, headers={"User-Agent": "opencode-client-python/0.2.0"})
    assert response.json()["path"] == "" and response.json()["cost"] == 0


@pytest.mark.parametrize("options", [{}, {"content": b""}, {"content": b"{}", "headers": {"content-type": "application/json"}}])
async def test_a_session_needs_no_body(app: RunningApp, options: dict[str, Any]) -> None:
    assert (await app.call("POST", "/session", **options))["title"].startswith("New session - ")


async def test_a_session_may_have_a_parent_rules_and_a_title(app: RunningApp) -> None:
    parent = await app.create_session()
    rules = [{"permission": "bash", "pattern": "*", "action": "deny"}]
    child = await app.create_session(parentID=parent["id"], permission=rules, unknown="dropped")
    assert child["title"].startswith("Child session - ") and child["parentID"] == parent["id"]
    assert child["permission"] == rules and "unknown" not in child
    assert (await app.create_session(title=""))["title"] == ""


async def test_a_session_below_another_has_the_rules_of_its_parent(app: RunningApp) -> None:
    denied = {"permission": "edit", "pattern": "*", "action": "deny"}
    asked = {"permission": "bash", "pattern": "*", "action": "ask"}
    parent = await app.create_session(permission=[denied])
    assert (await app.create_session(parentID=parent["id"]))["permission"] == [denied]
    assert asked in (await app.create_session(parentID=parent["id"], permission=[asked]))["permission"]
    assert "permission" not in await app.create_session(parentID="ses_of_nobody")


async def test_two_events_tell_of_a_new_session(app: RunningApp) -> None:
    async with app.events() as events:
        session = await app.create_session()
        await events.until("session.updated")
    assert [(event.type, event.properties["info"]) for event in events.seen[1:]] == [
        ("session.created", session),
        ("session.updated", session),
    ]


async def test_renaming_and_archiving_do_not_touch(app: RunningApp) -> None:
    session = await app.create_session()
    path = f"/session/{session['id']}"
    renamed = await app.call("PATCH", path, {"title": "New é"})
    assert renamed == {**session, "title": "New é"}
    archived = await app.call("PATCH", path, {"time": {"archived": 123}})
    assert archived["time"] == {**session["time"], "archived": 123} and archived["title"] == "New é"
    assert await app.call("PATCH", path, {}) == archived == await app.get(path)


def rule(permission: str, pattern: str, action: str) -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": action}


async def test_rules_are_set_behind_those_that_are_there_and_announced(app: RunningApp) -> None:
    first, second = rule("bash", "*", "ask"), rule("edit", "*", "deny")
    session = await app.create_session(permission=[first, second])
    path = f"/session/{session['id']}"
    third, again = rule("bash", "git *", "allow"), rule("bash", "*", "deny")
    async with app.events() as events:
        updated = await app.call("PATCH", path, {"permission": [again, third]})
        announced = (await events.until("session.updated")).properties["info"]
    assert updated["permission"] == [second, again, third] and updated["time"]["updated"] >= session["time"]["updated"]
    assert announced == updated == await app.get(path)


async def test_a_session_below_another_can_only_have_rights_taken_away(app: RunningApp) -> None:
    parent = await app.create_session(permission=[rule("bash", "*", "deny")])
    child = await app.create_session(parentID=parent["id"])
    wanted = [rule("bash", "*", "allow"), rule("edit", "*", "ask")]
    rules = (await app.call("PATCH", f"/session/{child['id']}", {"permission": wanted}))["permission"]
    actions = [evaluate(name, "x", RULES.validate_python(rules)).action for name in ("bash", "edit")]
    assert actions == ["deny", "ask"]


async def test_what_is_taken_from_a_session_is_taken_from_those_below_it(app: RunningApp) -> None:
    top = await app.create_session()
    child = await app.create_session(parentID=top["id"], permission=[rule("bash", "*", "allow")])
    below = await app.create_session(parentID=child["id"])
    async with app.events() as events:
        await app.call("PATCH", f"/session/{top['id']}", {"permission": [rule("bash", "*", "deny")]})
        await events.until("session.updated", count=3)
    for session in (child, below):
        rules = (await app.get(f"/session/{session['id']}"))["permission"]
        assert evaluate("bash", "x", RULES.validate_python(rules)).action == "deny"


async def test_what_newer_clients_create_a_session_with_is_kept(app: RunningApp) -> None:
    fields = {"agent": "plan", "model": {"providerID": "scripted", "id": "rules"}, "metadata": {"mine": [1]}}
    session = await app.create_session(**fields)
    assert {key: session[key] for key in fields} == fields
    forked = await app.post(f"/session/{session['id']}/fork")
    assert {key: forked[key] for key in fields} == fields
    changed = await app.call("PATCH", f"/session/{session['id']}", {"metadata": {"other": 2}})
    assert changed["metadata"] == {"other": 2} == (await app.get(f"/session/{session['id']}"))["metadata"]


async def test_aborting_what_does_not_run_is_no_error(app: RunningApp) -> None:
    session = await app.create_session()
    assert await app.post(f"/session/{session['id']}/abort") is True
    assert await app.post(f"/session/{UNKNOWN}/abort") is True


# Listing.


async def test_newest_created_come_first_whatever_was_updated(app: RunningApp) -> None:
    first = await app.create_session(title="1")
    for title in ("2", "3"):
        await app.create_session(title=title)
    await app.prompt(first["id"], "touched", noReply=True)
    assert await titles(app) == ["3", "2", "1"]


@pytest.mark.parametrize(
    ("limit", "count"), [("0", 1), ("1", 1), ("2", 2), ("2.9", 2), ("3", 3), ("99999999999999999999", 3), ("1e300", 3), ("", 3)]
)
async def test_a_limit(app: RunningApp, limit: str, count: int) -> None:
    for title in "123":
        await app.create_session(title=title)
    assert len(await titles(app, **({"limit": limit} if limit else {}))) == count


async def test_only_roots(app: RunningApp) -> None:
    root = await app.create_session(title="root")
    await app.create_session(title="child", parentID=root["id"])
    assert await titles(app) == ["child", "root"]
    for anything in ("true", "0"):
        assert await titles(app, roots=anything) == ["root"]
    assert await titles(app, roots="false") == ["child", "root"]


async def test_a_directory_selects_exactly_its_sessions(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    await app.create_session(title="top")
    await app.post("/session", {"title": "inside"}, params={"directory": str(inside)})
    assert await titles(app) == ["inside", "top"]
    assert await titles(app, directory=str(inside)) == ["inside"]
    assert await titles(app, directory=str(app.directory)) == ["top"]
    by_header = await app.get("/session", headers={"x-opencode-directory": str(inside)})
    assert [session["title"] for session in by_header] == ["inside", "top"]


async def test_a_directory_in_a_header_is_percent_encoded(app: RunningApp) -> None:
    inside = app.directory / "mit Leerzeichen und ü"
    inside.mkdir()
    session = await app.post("/session", headers={"x-opencode-directory": str(inside).replace(" ", "%20").replace("ü", "%C3%BC")})
    assert session["directory"] == str(inside)


async def test_only_those_updated_since(app: RunningApp) -> None:
    session = await app.create_session(title="now")
    updated = session["time"]["updated"]
    assert await titles(app, start=updated) == ["now"]
    assert await titles(app, start=updated + 1) == []
    assert await titles(app, start="-1e400") == ["now"] and await titles(app, start="1e400") == []


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("HELLO", ["Hello World"]),
        ("straße", ["GROSSE STRASSE"]),
        ("ÉCOLE", ["école"]),
        ("100%", ["100% a_b \\ '\""]),
        ("a_b", ["100% a_b \\ '\""]),
        ("a%b", []),
        ("\\", ["100% a_b \\ '\""]),
        ("'\"", ["100% a_b \\ '\""]),
        ("x" * 2_000, []),
        ("", ["école", "GROSSE STRASSE", "100% a_b \\ '\"", "Hello World"]),
    ],
)
async def test_a_search_in_titles(app: RunningApp, search: str, found: list[str]) -> None:
    for title in ("Hello World", "100% a_b \\ '\"", "GROSSE STRASSE", "école"):
        await app.create_session(title=title)
    assert await titles(app, search=search) == found


async def test_filters_come_before_the_limit(app: RunningApp) -> None:
    for title in ("find me", "other", "another"):
        await app.create_session(title=title)
    assert await titles(app, search="find", limit=1) == ["find me"]


async def test_children_newest_first(app: RunningApp) -> None:
    parent = await app.create_session()
    children = [(await app.create_session(parentID=parent["id"]))["id"] for _ in range(2)]
    found = await app.get(f"/session/{parent['id']}/children")
    assert [session["id"] for session in found] == children[::-1]
    assert await app.get(f"/session/{children[0]}/children") == []


# Deleting.


async def test_a_deleted_session_is_gone_with_all_below_it(app: RunningApp) -> None:
    parent = await app.create_session()
    child = await app.create_session(parentID=parent["id"])
    await app.prompt(child["id"], "hi")
    async with app.events() as events:
        assert await app.call("DELETE", f"/session/{parent['id']}") is True
        await events.until("session.deleted", count=2)
    assert [event.properties["info"]["id"] for event in events.of_type("session.deleted")] == [child["id"], parent["id"]]
    for session in (parent, child):
        await app.get(f"/session/{session['id']}", expect=404)
        await app.get(f"/session/{session['id']}/message", expect=404)
        await app.call("DELETE", f"/session/{session['id']}", expect=404)
    assert await app.get("/session") == []


async def test_deleting_a_session_stops_its_turn(app: RunningApp) -> None:
    gate = asyncio.Event()
    app.provider.add([{"text": "never", "chunks": 1}, {"wait": gate}])
    session = await app.create_session()
    async with app.events() as events:
        await app.prompt_async(session["id"], "hi")
        await events.until("message.part.updated", count=2)
        await app.call("DELETE", f"/session/{session['id']}")
        await events.until("session.deleted")
    assert await app.get("/session/status") == {}
    await app.get(f"/session/{session['id']}", expect=404)


# Forks.


async def test_a_fork_is_a_session_of_its_own(app: RunningApp) -> None:
    session = await app.create_session(title="T")
    await app.prompt(session["id"], "one")
    await app.prompt(session["id"], "two")
    original = await app.messages(session["id"])
    fork = await app.post(f"/session/{session['id']}/fork")
    assert fork["title"] == "T (fork #1)" and "parentID" not in fork
    copy = await app.messages(fork["id"])
    texts = [[part.get("text") for part in message["parts"]] for message in copy]
    assert texts == [[part.get("text") for part in message["parts"]] for message in original]
    await app.prompt(fork["id"], "three")
    assert await app.messages(session["id"]) == original


async def test_a_fork_at_a_message_leaves_it_out(app: RunningApp) -> None:
    session = await app.create_session()
    await app.prompt(session["id"], "one")
    await app.prompt(session["id"], "two")
    second = (await app.messages(session["id"]))[2]["info"]["id"]
    fork = await app.post(f"/session/{session['id']}/fork", {"messageID": second})
    assert len(await app.messages(fork["id"])) == 2


# What hangs on a session.


async def test_a_new_session_has_no_todos_no_diff_and_no_messages(app: RunningApp) -> None:
    path = f"/session/{(await app.create_session())['id']}"
    assert [await app.get(f"{path}/{below}") for below in ("todo", "diff", "message", "children")] == [[], [], [], []]


async def test_todos_are_what_the_model_wrote(app: RunningApp) -> None:
    todos = [{"content": "c", "status": "pending", "priority": "high", "id": "1"}]
    app.provider.add([{"tool": "todowrite", "args": {"todos": todos}}])
    session = await app.create_session()
    await app.prompt(session["id"], "plan")
    assert await app.get(f"/session/{session['id']}/todo") == todos


async def test_a_diff_is_of_the_session_or_of_one_prompt(app: RunningApp) -> None:
    await app.call("PATCH", "/config", {"permission": "allow"})
    session = await app.create_session()
    path = f"/session/{session['id']}"
    for name in ("one.txt", "two.txt"):
        app.provider.add([{"tool": "write", "args": {"filePath": name, "content": "x\n"}}])
        await app.prompt(session["id"], name)
    first, _, _ = (message["info"]["id"] for message in (await app.messages(session["id"]))[:3])
    assert {diff["file"] for diff in await app.get(f"{path}/diff")} == {"one.txt", "two.txt"}
    [diff] = await app.get(f"{path}/diff", params={"messageID": first})
    assert diff.pop("patch").endswith("@@ -0,0 +1 @@\n+x\n") and diff.pop("status") == "added"
    assert diff == {"file": "one.txt", "before": "", "after": "x\n", "additions": 1, "deletions": 0}
    await app.get(f"{path}/diff", params={"messageID": "foo"}, expect=400)
    await app.get(f"{path}/diff", params={"messageID": "msg_nope"}, expect=404)


async def test_a_session_at_work_is_busy_and_no_other(app: RunningApp, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app.provider.add([{"wait": gate}, {"text": "done"}])
    session, _idle = await app.create_session(), await app.create_session()
    assert await app.get("/session/status") == {}
    async with app.events() as events:
        await app.prompt_async(session["id"], "hi")
        await events.until("session.status")
        assert await app.get("/session/status") == {session["id"]: {"type": "busy"}}
        gate.set()
        await events.until("session.idle")
    assert await app.get("/session/status") == {}
