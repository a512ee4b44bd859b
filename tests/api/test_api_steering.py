"""Steering: what is asked of `/tui/*` reaches the terminal clients of the same user and directory, and nobody else. And what a
client with an editor is asked for at a session."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sse_reader import EventReader
from turns import call, say, tools
from user_logins import logged_in, user

from app.users.tokens import TokenStore

AN_END = "an end"
"""The text of a steering event behind all that a test looks at."""
EXECUTED, APPENDED, TOASTED = "tui.command.execute", "tui.prompt.append", "tui.toast.show"
HELLO = {"text": "hello"}
DONE = {"message": "Done.", "variant": "info"}
SHOWN = {**DONE, "duration": 5000}
TITLED = {"title": "Tests", "message": "2 failed", "variant": "error", "duration": 100}

ANNOUNCED: list[tuple[str, dict[str, Any] | None, str, dict[str, Any]]] = [
    ("open-help", None, EXECUTED, {"command": "help.show"}),
    ("open-sessions", None, EXECUTED, {"command": "session.list"}),
    ("open-themes", None, EXECUTED, {"command": "theme.switch"}),
    ("open-models", None, EXECUTED, {"command": "model.list"}),
    ("submit-prompt", None, EXECUTED, {"command": "prompt.submit"}),
    ("clear-prompt", None, EXECUTED, {"command": "prompt.clear"}),
    ("clear-prompt", {}, EXECUTED, {"command": "prompt.clear"}),
    ("execute-command", {"command": "session_new"}, EXECUTED, {"command": "session.new"}),
    ("execute-command", {"command": "messages_half_page_up"}, EXECUTED, {"command": "session.half.page.up"}),
    ("execute-command", {"command": "agent.cycle"}, EXECUTED, {"command": "agent.cycle"}),
    ("append-prompt", HELLO, APPENDED, HELLO),
    ("show-toast", DONE, TOASTED, SHOWN),
    ("show-toast", TITLED, TOASTED, TITLED),
    ("publish", {"type": APPENDED, "properties": HELLO}, APPENDED, HELLO),
    ("publish", {"type": EXECUTED, "properties": {"command": "any.thing"}}, EXECUTED, {"command": "any.thing"}),
    ("publish", {"type": TOASTED, "properties": DONE}, TOASTED, SHOWN),
]


async def append(app: RunningApp, text: str, **headers: str) -> None:
    assert await app.post("/tui/append-prompt", {"text": text}, headers=headers) is True


async def test_a_request_is_announced(app: RunningApp) -> None:
    session = await app.create_session()
    selected = ("select-session", {"sessionID": session["id"]}, "tui.session.select", {"sessionID": session["id"]})
    async with app.events() as events:
        for path, body, *_ in (*ANNOUNCED, selected):
            assert await app.post(f"/tui/{path}", body) is True
        await events.until("tui.session.select")
    told = [(event.type, event.properties) for event in events.seen if event.type.startswith("tui.")]
    assert told == [(kind, properties) for _, _, kind, properties in (*ANNOUNCED, selected)]


async def test_a_directory_hears_of_its_own(app: RunningApp) -> None:
    below = app.directory / "below"
    below.mkdir()
    async with app.events() as here, app.events(directory=str(below)) as there, app.events("/global/event") as everywhere:
        await append(app, "below", **{"x-opencode-directory": str(below)})
        await append(app, "here")
        await everywhere.until(APPENDED, count=2)
        assert [event.data["directory"] for event in everywhere.of_type(APPENDED)] == [str(below), str(app.directory)]
        assert (await here.until(APPENDED)).properties == {"text": "here"}
        assert (await there.until(APPENDED)).properties == {"text": "below"}


@pytest.fixture
async def operator(app: RunningApp) -> AsyncIterator[RunningApp]:
    async with logged_in(app, TokenStore(app.data_dir).create("operator")) as client:
        yield client


async def steered(events: EventReader) -> list[str]:
    """The texts that came before the end."""
    await events.until(lambda event: event.type == APPENDED and event.properties["text"] == AN_END)
    return [event.properties["text"] for event in events.of_type(APPENDED)][:-1]


async def test_a_user_drives_only_clients_of_their_own(
    operator: RunningApp, anna: RunningApp, root: RunningApp, vera: RunningApp
) -> None:
    """Whatever role they have: a member would have an admin's client send prompts with an admin's rights."""
    async with operator.events() as own, anna.events() as annas, root.events("/global/event") as roots, vera.events() as veras:
        for name, client in {"operator": operator, "anna": anna, "root": root}.items():
            await append(client, name)
        for client in (anna, root, operator):
            await append(client, AN_END)
        assert [await steered(events) for events in (annas, roots, own)] == [["anna"], ["root"], ["operator"]]
        assert veras.of_type(APPENDED) == []
        assert (await vera.post("/tui/open-help", expect=403))["name"] == "ReadOnlyError"
    session = await root.create_session()
    refused = await anna.post("/tui/select-session", {"sessionID": session["id"]}, expect=404)
    assert refused["name"] == "NotFoundError"


async def test_a_client_that_comes_back_is_not_driven_by_what_it_missed(app: RunningApp) -> None:
    async with app.events(ids=True) as events:
        cursor = (await events.until("server.connected")).cursor
    await app.post("/tui/submit-prompt")
    session = await app.create_session()
    async with app.events(cursor=cursor) as events:
        assert (await events.until("session.created")).properties["info"]["id"] == session["id"]
        await app.post("/tui/open-help")
        assert (await events.until(EXECUTED)).properties == {"command": "help.show"}


# Fetched one by one.


@asynccontextmanager
async def fetching(app: RunningApp, path: str = "/tui/control/next") -> AsyncIterator["asyncio.Task[dict[str, Any]]"]:
    """The next request, which is waited for from here on."""
    async with app.client.stream("GET", path) as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"\n"

        async def rest() -> Any:
            return json.loads(b"".join([piece async for piece in pieces]))

        task = asyncio.create_task(rest())
        yield task
        task.cancel()


async def test_requests_are_fetched_in_their_order_until_the_directory_is_disposed_of(app: RunningApp) -> None:
    async with fetching(app):
        pass  # a program that went away takes nothing with it
    async with fetching(app) as first:
        await append(app, "hello")
        await app.post("/tui/open-help")
        assert await first == {"path": "/tui/append-prompt", "body": HELLO}
    assert await app.post("/tui/control/response", {"done": True}) is True
    await app.post("/tui/show-toast", DONE)
    assert await app.get("/tui/control/next") == {"path": "/tui/execute-command", "body": {"command": "help.show"}}
    assert await app.get("/tui/control/next") == {"path": "/tui/show-toast", "body": SHOWN}
    async with fetching(app) as one, fetching(app) as other:
        for text in ("one", "two"):
            await append(app, text)
        assert [(await one)["body"]["text"], (await other)["body"]["text"]] == ["one", "two"]
    async with fetching(app) as waiting:
        await app.post("/instance/dispose")
        assert (await waiting)["name"] == "ControlEndedError"
    async with fetching(app) as again:
        await app.post("/tui/open-help")
        assert (await again)["body"] == {"command": "help.show"}


async def test_users_fetch_their_own(operator: RunningApp, anna: RunningApp) -> None:
    async with fetching(operator) as operators, fetching(anna) as annas:
        await append(operator, "operator")
        await append(anna, "anna")
        assert [(await annas)["body"], (await operators)["body"]] == [{"text": "anna"}, {"text": "operator"}]


async def test_those_that_wait_count_as_streams(app: RunningApp) -> None:
    app.services.settings.max_event_streams = 1
    async with app.events():
        assert (await app.get("/tui/control/next", expect=429))["name"] == "TooManyStreamsError"


@pytest.mark.parametrize("path", ["/tui/control/next", "/session/{session}/editor"])
async def test_who_waits_is_told_nothing_when_their_login_has_ended(tmp_path: Path, path: str) -> None:
    async with running_app(tmp_path) as app:
        store = TokenStore(app.data_dir)
        async with user(app, "anna") as anna, logged_in(app, store.create("other", user="anna")) as other:
            session_id = (await anna.create_session())["id"]
            app.provider.add([call("read", filePath="a.txt")], [say()])
            (app.directory / "a.txt").write_text("stored")
            async with other.client.stream("GET", path.format(session=session_id)) as response:
                pieces = response.aiter_bytes()
                assert await anext(pieces) == b"\n"
                store.revoke("other")
                await append(anna, "private")
                turn = asyncio.create_task(anna.prompt(session_id, "go"))
                assert b"".join([piece async for piece in pieces]).strip() == b""
                await turn


# A client with an editor.


async def test_the_agent_reads_what_the_client_answers(app: RunningApp) -> None:
    app.provider.add([call("read", filePath="a.txt")], [say()])
    session_id = (await app.create_session())["id"]
    path = f"/session/{session_id}/editor"
    async with fetching(app, path) as file:
        turn = asyncio.create_task(app.prompt(session_id, "go"))
        asked = await file
        assert asked["path"] == str(app.directory / "a.txt")
        answer = {"id": asked["id"], "text": "shown\n"}
        assert await app.post(path, answer) is True
        await turn
        assert await app.post(path, answer) is False
    (read,) = tools(await app.messages(session_id))
    assert "00001| shown" in read["state"]["output"]
    await app.post(path, {"id": "x", "text": "x" * (10 * 1024 * 1024 + 1)}, expect=400)
    await app.post("/session/ses_none/editor", {"id": "x"}, expect=404)
    await app.get("/session/ses_none/editor", expect=404)


async def test_who_may_not_prompt_in_a_session_lends_it_nothing(anna: RunningApp, bert: RunningApp, vera: RunningApp) -> None:
    path, text = f"/session/{(await anna.create_session())['id']}/editor", {"id": "x", "text": "y"}
    for who, status in ((bert, 404), (vera, 403)):
        await who.get(path, expect=status)
        await who.post(path, text, expect=status)
    assert await anna.post(path, text) is False
