"""Permission requests over HTTP, and what is no answer; what becomes of the turn is in tests/flows/test_asking.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from running_app import RunningApp
from sse_reader import EventReader
from turns import tools

COMMAND = {"tool": "bash", "args": {"command": "echo hi", "description": "greets"}, "id": "call_1"}


@asynccontextmanager
async def asked(app: RunningApp) -> AsyncIterator[tuple[dict[str, Any], EventReader]]:
    """A turn whose tool waits for an answer to the request that is given."""
    await app.call("PATCH", "/config", {"permission": {"bash": "ask"}})
    app.provider.add([COMMAND], [{"text": "done"}])
    session = await app.create_session()
    async with app.events() as events:
        await app.prompt_async(session["id"], "go")
        request = (await events.until("permission.asked")).properties
        yield request, events


async def test_a_permission_is_listed_answered_and_gone(app: RunningApp) -> None:
    async with asked(app) as (request, events):
        assert await app.get("/permission") == [request]
        assert request["permission"] == "bash" and request["patterns"] == ["echo hi"]
        assert request["tool"]["callID"] == "call_1"
        assert await app.post(f"/permission/{request['id']}/reply", {"reply": "once"}) is True
        replied = await events.until("permission.replied")
        assert replied.properties == {"sessionID": request["sessionID"], "requestID": request["id"], "reply": "once"}
        await events.until("session.idle")
    assert await app.get("/permission") == []
    assert tools(await app.messages(request["sessionID"]))[0]["state"]["output"].strip().startswith("hi")


async def test_it_is_asked_of_its_directory_alone_and_the_old_route_answers_too(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    async with asked(app) as (request, events):
        assert await app.get("/permission", params={"directory": str(inside)}) == []
        path = f"/session/{request['sessionID']}/permissions/{request['id']}"
        assert await app.post(path, {"response": "once"}) is True
        await events.until("session.idle")


async def test_of_two_answers_at_once_one_counts(app: RunningApp) -> None:
    async with asked(app) as (request, events):
        path = f"/permission/{request['id']}/reply"
        replies = await asyncio.gather(*(app.client.post(path, json={"reply": "once"}) for _ in range(3)))
        assert sorted(reply.status_code for reply in replies) == [200, 404, 404]
        await events.until("session.idle")
        assert len(events.of_type("permission.replied")) == 1
