"""Steering: what is asked of `/tui/*` reaches the terminal clients of the same user and directory, and nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from running_app import RunningApp
from sse_reader import EventReader
from user_logins import logged_in, user

from app.users.tokens import TokenStore

AN_END = "an end"
"""The text of a steering event behind all that a test looks at."""


def executes(command: str) -> tuple[str, dict[str, Any]]:
    return "tui.command.execute", {"command": command}


SHOWN = ("tui.toast.show", {"message": "Done.", "variant": "info", "duration": 5000})
TITLED = {"title": "Tests", "message": "2 failed", "variant": "error", "duration": 100}
APPENDED = ("tui.prompt.append", {"text": "hello"})


ANNOUNCED: list[tuple[str, dict[str, Any] | None, tuple[str, dict[str, Any]]]] = [
    ("open-help", None, executes("help.show")),
    ("open-sessions", None, executes("session.list")),
    ("open-themes", None, executes("theme.switch")),
    ("open-models", None, executes("model.list")),
    ("submit-prompt", None, executes("prompt.submit")),
    ("clear-prompt", None, executes("prompt.clear")),
    ("clear-prompt", {}, executes("prompt.clear")),
    ("execute-command", {"command": "session_new"}, executes("session.new")),
    ("execute-command", {"command": "messages_half_page_up"}, executes("session.half.page.up")),
    ("execute-command", {"command": "agent.cycle"}, executes("agent.cycle")),
    ("append-prompt", {"text": "hello"}, APPENDED),
    ("show-toast", {"message": "Done.", "variant": "info"}, SHOWN),
    ("show-toast", TITLED, ("tui.toast.show", TITLED)),
    ("publish", {"type": "tui.prompt.append", "properties": {"text": "hello"}}, APPENDED),
    ("publish", {"type": "tui.command.execute", "properties": {"command": "any.thing"}}, executes("any.thing")),
    ("publish", {"type": "tui.toast.show", "properties": {"message": "Done.", "variant": "info"}}, SHOWN),
]


async def test_a_request_is_announced(app: RunningApp) -> None:
    async with app.events() as events:
        for path, body, _ in ANNOUNCED:
            assert await app.post(f"/tui/{path}", body) is True
        await events.when(lambda: sum(event.type.startswith("tui.") for event in events.seen) >= len(ANNOUNCED))
    told = [(event.type, event.properties) for event in events.seen if event.type.startswith("tui.")]
    assert told == [announced for _, _, announced in ANNOUNCED]


async def test_a_session_of_ones_own_is_selected(app: RunningApp) -> None:
    session = await app.create_session()
    async with app.events() as events:
        assert await app.post("/tui/select-session", {"sessionID": session["id"]}) is True
        assert (await events.until("tui.session.select")).properties == {"sessionID": session["id"]}
    async with user(app, "ann") as ann:
        refused = await ann.post("/tui/select-session", {"sessionID": session["id"]}, expect=404)
        assert refused["name"] == "NotFoundError"


async def test_a_directory_hears_of_its_own(app: RunningApp) -> None:
    below = app.directory / "below"
    below.mkdir()
    async with app.events() as here, app.events(directory=str(below)) as there, app.events("/global/event") as everywhere:
        await app.post("/tui/append-prompt", {"text": "below"}, headers={"x-opencode-directory": str(below)})
        await app.post("/tui/append-prompt", {"text": "here"})
        await everywhere.until("tui.prompt.append", count=2)
        assert [event.data["directory"] for event in everywhere.of_type("tui.prompt.append")] == [str(below), str(app.directory)]
        assert (await here.until("tui.prompt.append")).properties == {"text": "here"}
        assert (await there.until("tui.prompt.append")).properties == {"text": "below"}


@asynccontextmanager
async def operator(app: RunningApp) -> AsyncIterator[RunningApp]:
    async with logged_in(app, TokenStore(app.data_dir).create("operator")) as client:
        yield client


async def steered(events: EventReader) -> list[str]:
    """The texts that came before the end."""
    await events.until(lambda event: event.type == "tui.prompt.append" and event.properties["text"] == AN_END)
    return [event.properties["text"] for event in events.of_type("tui.prompt.append")][:-1]


async def test_a_user_drives_only_clients_of_their_own(app: RunningApp) -> None:
    """Whatever role they have: a member would have an admin's client send prompts with an admin's rights."""
    async with (
        operator(app) as root,
        user(app, "ann") as ann,
        user(app, "ben", "admin") as ben,
        user(app, "eve", "viewer") as eve,
    ):
        async with root.events() as own, ann.events() as anns, ben.events("/global/event") as bens, eve.events() as eves:
            for name, client in {"operator": root, "ann": ann, "ben": ben}.items():
                await client.post("/tui/append-prompt", {"text": name})
            for client in (ann, ben, root):
                await client.post("/tui/append-prompt", {"text": AN_END})
            assert await steered(anns) == ["ann"]
            assert await steered(bens) == ["ben"]
            assert await steered(own) == ["operator"]
            assert eves.of_type("tui.prompt.append") == []
            assert (await eve.post("/tui/open-help", expect=403))["name"] == "ReadOnlyError"


async def test_a_client_that_comes_back_is_not_driven_by_what_it_missed(app: RunningApp) -> None:
    async with app.events(ids=True) as events:
        cursor = (await events.until("server.connected")).cursor
    await app.post("/tui/submit-prompt")
    session = await app.create_session()
    async with app.events(cursor=cursor) as events:
        created = await events.until("session.created")
        assert created.properties["info"]["id"] == session["id"]
        await app.post("/tui/open-help")
        assert (await events.until("tui.command.execute")).properties == {"command": "help.show"}


# Fetched one by one.


@asynccontextmanager
async def fetching(app: RunningApp) -> AsyncIterator["asyncio.Task[dict[str, Any]]"]:
    """The next request, which is waited for from here on."""
    async with app.client.stream("GET", "/tui/control/next") as response:
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"\n"

        async def rest() -> Any:
            return json.loads(b"".join([piece async for piece in pieces]))

        task = asyncio.create_task(rest())
        yield task
        task.cancel()


async def test_requests_are_fetched_in_their_order(app: RunningApp) -> None:
    async with fetching(app):
        pass  # a program that went away takes nothing with it
    async with fetching(app) as first:
        await app.post("/tui/append-prompt", {"text": "hello"})
        await app.post("/tui/open-help")
        assert await first == {"path": "/tui/append-prompt", "body": {"text": "hello"}}
    assert await app.post("/tui/control/response", {"done": True}) is True
    await app.post("/tui/show-toast", {"message": "Done.", "variant": "info"})
    assert await app.get("/tui/control/next") == {"path": "/tui/execute-command", "body": {"command": "help.show"}}
    assert await app.get("/tui/control/next") == {"path": "/tui/show-toast", "body": SHOWN[1]}
    async with fetching(app) as one, fetching(app) as other:
        for text in ("one", "two"):
            await app.post("/tui/append-prompt", {"text": text})
        assert [(await one)["body"]["text"], (await other)["body"]["text"]] == ["one", "two"]


async def test_users_fetch_their_own(app: RunningApp) -> None:
    async with operator(app) as root, user(app, "ann") as ann, fetching(root) as operators, fetching(ann) as anns:
        await root.post("/tui/append-prompt", {"text": "operator"})
        await ann.post("/tui/append-prompt", {"text": "ann"})
        assert (await anns)["body"] == {"text": "ann"}
        assert (await operators)["body"] == {"text": "operator"}


async def test_a_disposal_ends_the_wait(app: RunningApp) -> None:
    async with fetching(app) as waiting:
        await app.post("/instance/dispose")
        assert (await waiting)["name"] == "ControlEndedError"
    async with fetching(app) as again:
        await app.post("/tui/open-help")
        assert (await again)["body"] == {"command": "help.show"}


async def test_those_that_wait_count_as_streams(app: RunningApp, tmp_path: Path) -> None:
    app.services.settings.max_event_streams = 1
    async with app.events():
        assert (await app.get("/tui/control/next", expect=429))["name"] == "TooManyStreamsError"
