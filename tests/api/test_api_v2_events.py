"""The second API's stream: the first API's events in its form, and its own beside them."""

import asyncio
from pathlib import Path

from running_app import RunningApp, running_app
from sse_reader import Received
from user_logins import user

COMMAND = {"tool": "bash", "args": {"command": "echo hi", "description": "greets"}, "id": "call_1"}
ASK = [{"permission": "bash", "pattern": "*", "action": "ask"}]


async def test_it_begins_with_a_greeting_and_tells_each_events_place(app: RunningApp) -> None:
    async with app.events("/api/event") as events:
        greeting = await events.until("server.connected")
        assert greeting.data == {"id": greeting.event_id, "type": "server.connected", "data": {}}
        session = await app.create_session()
        created = await events.until("session.created")
        assert created.data["location"] == {"directory": str(app.directory)}
        assert created.data["data"]["info"]["id"] == session["id"]
        assert created.data.keys() == {"id", "type", "location", "data"}
        assert created.event_id.startswith("evt_")
    missed = await app.create_session(title="missed")
    async with app.events("/api/event", cursor=created.event_id) as events:
        again = await events.until("session.created")
        assert again.data["data"]["info"]["id"] == missed["id"], "what it missed is sent to a client that comes back"


async def test_a_text_is_told_by_what_it_gains(app: RunningApp) -> None:
    session = await app.create_session()
    app.provider.add([{"text": "Hello there."}])
    async with app.events("/api/event") as events:
        await app.prompt(session["id"], "go")
        await events.until("session.idle")
    gained = [event.data["data"] for event in events.of_type("message.part.delta")]
    assert "".join(each["delta"] for each in gained if each["field"] == "text") == "Hello there."
    assert all("delta" not in event.data["data"] for event in events.of_type("message.part.updated"))


async def test_requests_to_the_user_have_events_of_their_own(app: RunningApp) -> None:
    app.provider.add([COMMAND], [{"text": "done"}])
    session = await app.create_session(permission=ASK)
    async with app.events("/api/event") as events:
        await app.prompt_async(session["id"], "go")
        asked = (await events.until("permission.v2.asked")).data["data"]
        assert asked == (await app.get("/api/permission/request"))["data"][0]
        assert (await events.until("permission.asked")).data["data"]["id"] == asked["id"]
        await app.post(f"/permission/{asked['id']}/reply", {"reply": "once"})
        replied = await events.until("permission.v2.replied")
        assert replied.data["data"] == {"sessionID": session["id"], "requestID": asked["id"], "reply": "once"}
        await events.until("session.idle")
    ids = [event.event_id for event in events.seen]
    assert len(set(ids)) == len(ids)


async def test_between_events_it_sends_comments(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.01) as app, app.client.stream("GET", "/api/event") as response:
        text = ""
        async with asyncio.timeout(60):
            async for piece in response.aiter_text():
                text += piece
                if text.count(": heartbeat\n\n") >= 2:
                    break
    assert "server.heartbeat" not in text


async def test_users_hear_of_their_own_sessions(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "ben") as ben:
        async with ben.events("/api/event") as events:
            await anna.create_session(title="hers")
            await ben.create_session(title="his")

            def is_his(event: Received) -> bool:
                return event.type == "session.created" and event.data["data"]["info"]["title"] == "his"

            await events.until(is_his)
        assert [event.data["data"]["info"]["title"] for event in events.of_type("session.created")] == ["his"]
