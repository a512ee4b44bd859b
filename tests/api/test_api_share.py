"""Share links over HTTP: who makes them, or what does by itself, what a visitor gets, and when there is nothing to get."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from database_meter import metered
from running_app import RunningApp, running_app
from turns import call, configured, say, task, texts


async def share(app: RunningApp, session_id: str) -> str:
    """The path of the link."""
    session = await app.post(f"/session/{session_id}/share")
    return httpx2.URL(session["share"]["url"]).path


@pytest.mark.parametrize(
    ("settings", "host", "address"),
    [
        ({}, "localhost:8000", "http://localhost:8000/s/"),
        ({"public_url": "https://reach.example/base/"}, "127.0.0.1:4096", "https://reach.example/base/s/"),
    ],
)
async def test_a_shared_session_tells_its_link_which_leads_to_the_public_address_or_the_one_that_was_asked(
    tmp_path: Path, settings: dict[str, str], host: str, address: str
) -> None:
    async with running_app(tmp_path, **settings) as app:
        session = await app.create_session()
        path, asked = f"/session/{session['id']}", {"headers": {"host": host}}
        shared = await app.post(f"{path}/share", **asked)
        assert set(shared["share"]) == {"url"} and shared["share"]["url"].startswith(address)
        assert shared == {**session, "share": shared["share"]} == await app.get(path, **asked), "and nothing else more"
        assert await app.post(f"{path}/share", **asked) == shared


async def test_a_visitor_gets_the_conversation_and_no_place_of_the_server(app: RunningApp) -> None:
    app.provider.add([call("write", filePath="b.txt", content="bye")], [say()])
    rules = [{"permission": "edit", "pattern": "*", "action": "allow"}]
    session = await app.create_session(permission=rules, title="Write b.txt")
    await app.prompt(session["id"], "Say bye", system="Be brief.")
    response = await app.client.get(f"{await share(app, session['id'])}/session")
    headers = {"cache-control": "no-store", "x-robots-tag": "noindex, nofollow", "referrer-policy": "no-referrer"}
    assert headers.items() <= response.headers.items()
    seen: dict[str, Any] = response.json()
    assert set(seen["session"]) <= {"id", "title", "version", "time", "summary"} and seen["session"]["title"] == "Write b.txt"
    assert [message["info"]["role"] for message in seen["messages"]] == ["user", "assistant", "assistant"]
    assert seen["messages"][0]["parts"][0]["text"] == "Say bye"
    assert [(diff["file"], diff["after"]) for diff in seen["diff"]] == [("b.txt", "bye")]
    beside = json.dumps([*(message["info"] for message in seen["messages"]), seen["session"]])
    assert str(app.directory.parent) not in beside and "Be brief" not in beside


async def test_the_page_of_a_link_is_shown_without_reading_the_conversation(tmp_path: Path) -> None:
    with metered() as spent:
        async with running_app(tmp_path, turns=[[{"text": "x" * 700_000}]]) as app:
            session = await app.create_session(title="Mine")
            await app.prompt(session["id"], "Write much")
            link = await share(app, session["id"])
            before = spent.copy()
            assert (await app.client.get(link)).status_code == 200
            assert spent.since(before).read < 1_000
            first = await app.client.get(f"{link}/session")
            assert spent.since(before).read > 700_000
            assert int(first.headers["content-length"]) == len(first.content) > 700_000


async def test_guesses_are_answered_alike(app: RunningApp) -> None:
    session = await app.create_session()
    await share(app, session["id"])
    message = "Nothing is shared here: the link is wrong, or the session is no longer shared."
    for guess in ("0" * 40, "x", "ses_1", "%00", "%ff", "a" * 5000, session["id"]):
        assert await app.get(f"/s/{guess}/session", expect=404) == {"name": "NotFoundError", "data": {"message": message}}


async def test_an_unshared_session_and_a_deleted_one_with_its_subagents_are_gone_for_visitors_at_once(app: RunningApp) -> None:
    session = await app.create_session()
    path, child = f"/session/{session['id']}", await app.create_session(parentID=session["id"])
    link = await share(app, session["id"])
    assert "share" not in await app.post(f"{path}/fork", {})
    async with app.events() as events:
        assert await app.call("DELETE", f"{path}/share") == session
        assert (await events.until("session.updated")).properties["info"] == session
        await app.get(f"{link}/session", expect=404)
        assert await app.call("DELETE", f"{path}/share") == session, "once more changes nothing"
        await app.call("PATCH", path, {"title": "Last"})
        last = await events.until("session.updated", count=2)
        assert last.properties["info"]["title"] == "Last"
    links = [await share(app, each["id"]) for each in (session, child)]
    await app.call("DELETE", path)
    for link in links:
        await app.get(f"{link}/session", expect=404)


async def test_where_sharing_is_disabled_nothing_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", "true")
    async with running_app(tmp_path, workspace=configured(tmp_path, {"share": "disabled"})) as app:
        session = await app.create_session()
        assert "share" not in session
        error = await app.post(f"/session/{session['id']}/share", expect=403)
        assert error["name"] == "SharingDisabledError" and '"share": "disabled"' in error["data"]["message"]


async def test_a_visitor_needs_no_password_also_after_a_restart_and_a_link_can_be_revoked_when_sharing_was_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path) as app:
        session = await app.create_session(title="kept")
        link = await share(app, session["id"])
    (tmp_path / "workspace" / "opencode.json").write_text('{"share": "disabled"}')
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        assert (await app.get(f"{link}/session"))["session"]["title"] == "kept"
        for path in (f"/session/{session['id']}", f"/session/{session['id']}/message", "/event"):
            await app.get(path, expect=401)
        await app.post(f"{link}/session", {}, expect=401)
        await app.get(f"{link}/session", expect=403, headers={"host": "evil.example"})
        assert await app.call("DELETE", f"/session/{session['id']}/share", auth=("opencode", "right")) == session


@pytest.mark.parametrize(("config", "flag"), [({"share": "auto"}, ""), ({}, "1")], ids=["by the configuration", "by the flag"])
async def test_a_session_is_shared_before_its_first_prompt_and_its_subagents_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], flag: str
) -> None:
    """A visitor is shown the answer."""
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", flag)
    turns = [[task("Look around")], [say("I looked.")], [say("Done.")]]
    async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, config)) as app:
        async with app.events() as events:
            session = await app.create_session()
            await app.prompt(session["id"], "Go")
            await events.until("session.idle", count=2)
        seen = await app.get(f"{httpx2.URL(session['share']['url']).path}/session")
        assert texts(seen["messages"][-1]) == ["Done."]
        (child,) = await app.get(f"/session/{session['id']}/children")
        assert "share" not in child and "share" in (await app.get(f"/session/{session['id']}"))
        assert "share" not in await app.create_session(parentID=session["id"])
