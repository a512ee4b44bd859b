"""Share links over HTTP: who makes them, what a visitor gets, and when there is nothing to get."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from database_meter import metered
from running_app import RunningApp, make_workspace, running_app


def configured(tmp_path: Path, **config: Any) -> Path:
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "opencode.json").write_text(json.dumps(config))
    return workspace


def path_of(url: str) -> str:
    return httpx2.URL(url).path


async def share(app: RunningApp, session_id: str) -> str:
    """The path of the link."""
    session = await app.post(f"/session/{session_id}/share")
    return path_of(session["share"]["url"])


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(inner)


async def test_a_shared_session_tells_its_link_and_nothing_else_more(app: RunningApp) -> None:
    session = await app.create_session()
    shared = await app.post(f"/session/{session['id']}/share")
    assert set(shared["share"]) == {"url"} and shared["share"]["url"].startswith("http://127.0.0.1:4096/s/")
    assert shared == {**session, "share": shared["share"]} == await app.get(f"/session/{session['id']}")
    assert await app.post(f"/session/{session['id']}/share") == shared


@pytest.mark.parametrize(
    ("settings", "host", "address"),
    [
        ({"public_url": "https://reach.example/base/"}, "127.0.0.1:4096", "https://reach.example/base/s/"),
        ({}, "localhost:8000", "http://localhost:8000/s/"),
    ],
)
async def test_a_link_leads_to_the_public_address_or_the_one_that_was_asked(
    tmp_path: Path, settings: dict[str, str], host: str, address: str
) -> None:
    async with running_app(tmp_path, **settings) as app:
        session = await app.create_session()
        shared = await app.post(f"/session/{session['id']}/share", headers={"host": host})
        assert shared["share"]["url"].startswith(address)


async def test_a_visitor_gets_the_conversation_and_no_place_of_the_server(tmp_path: Path) -> None:
    turns = [[{"tool": "write", "args": {"filePath": "b.txt", "content": "bye"}}], [{"text": "Done."}]]
    async with running_app(tmp_path, turns=turns) as app:
        rules = [{"permission": "edit", "pattern": "*", "action": "allow"}]
        session = await app.create_session(permission=rules, title="Write b.txt")
        await app.prompt(session["id"], "Say bye", system="Be brief.")
        link = await share(app, session["id"])
        response = await app.client.get(f"{link}/session")
        seen = response.json()
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-robots-tag"] == "noindex, nofollow"
        assert response.headers["referrer-policy"] == "no-referrer"
    assert set(seen["session"]) <= {"id", "title", "version", "time", "summary"} and seen["session"]["title"] == "Write b.txt"
    assert [message["info"]["role"] for message in seen["messages"]] == ["user", "assistant", "assistant"]
    assert seen["messages"][0]["parts"][0]["text"] == "Say bye"
    assert [(diff["file"], diff["after"]) for diff in seen["diff"]] == [("b.txt", "bye")]
    beside = [message["info"] for message in seen["messages"]] + [seen["session"]]
    assert not [text for text in strings(beside) if str(tmp_path) in text or "Be brief" in text]


async def test_what_a_visitor_need_not_be_sent_is_not_read_or_sent(tmp_path: Path) -> None:
    """Neither for the page of the link, nor for who knows the conversation already."""
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
            known = {"if-none-match": first.headers["etag"]}
            again = await app.client.get(f"{link}/session", headers=known)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
            assert again.headers["cache-control"] == "no-store"
            await app.call("PATCH", f"/session/{session['id']}", {"title": "Yours"})
            changed = await app.client.get(f"{link}/session", headers=known)
            assert changed.status_code == 200 and changed.json()["session"]["title"] == "Yours"


async def test_guesses_are_answered_alike(app: RunningApp) -> None:
    session = await app.create_session()
    await share(app, session["id"])
    message = "Nothing is shared here: the link is wrong, or the session is no longer shared."
    for guess in ("0" * 40, "x", "ses_1", "%00", "%ff", "a" * 5000, session["id"]):
        assert await app.get(f"/s/{guess}/session", expect=404) == {"name": "NotFoundError", "data": {"message": message}}


async def test_an_unshared_session_is_gone_for_visitors_at_once(app: RunningApp) -> None:
    session = await app.create_session()
    link = await share(app, session["id"])
    assert "share" not in await app.post(f"/session/{session['id']}/fork", {})
    async with app.events() as events:
        assert await app.call("DELETE", f"/session/{session['id']}/share") == session
        updated = await events.until("session.updated")
        assert updated.properties["info"] == session
        await app.get(f"{link}/session", expect=404)
        assert await app.call("DELETE", f"/session/{session['id']}/share") == session, "once more changes nothing"
        await app.call("PATCH", f"/session/{session['id']}", {"title": "Last"})
        last = await events.until("session.updated", count=2)
        assert last.properties["info"]["title"] == "Last"


async def test_so_is_a_deleted_one_with_its_subagents(app: RunningApp) -> None:
    parent = await app.create_session()
    child = await app.create_session(parentID=parent["id"])
    links = [await share(app, session["id"]) for session in (parent, child)]
    await app.call("DELETE", f"/session/{parent['id']}")
    for link in links:
        await app.get(f"{link}/session", expect=404)


async def test_where_sharing_is_disabled_nothing_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", "true")
    async with running_app(tmp_path, workspace=configured(tmp_path, share="disabled")) as app:
        session = await app.create_session()
        assert "share" not in session
        error = await app.post(f"/session/{session['id']}/share", expect=403)
        assert error["name"] == "SharingDisabledError" and '"share": "disabled"' in error["data"]["message"]


async def test_a_link_survives_a_restart_and_can_be_revoked_when_sharing_was_disabled(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session = await app.create_session(title="kept")
        link = await share(app, session["id"])
    (tmp_path / "workspace" / "opencode.json").write_text('{"share": "disabled"}')
    async with running_app(tmp_path) as app:
        assert (await app.get(f"{link}/session"))["session"]["title"] == "kept"
        assert await app.call("DELETE", f"/session/{session['id']}/share") == session


async def test_a_visitor_needs_no_password_and_reads_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path, auth=("opencode", "right")) as app:
        session = await app.create_session(title="seen")
        link = await share(app, session["id"])
        app.client.auth = None
        assert (await app.get(f"{link}/session"))["session"]["title"] == "seen"
        for path in (f"/session/{session['id']}", f"/session/{session['id']}/message", "/event"):
            await app.get(path, expect=401)
        await app.post(f"{link}/session", {}, expect=401)
        await app.get(f"{link}/session", expect=403, headers={"host": "evil.example"})
