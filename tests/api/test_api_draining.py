"""A server that is told to stop: which requests it refuses, and what it waits for."""

import asyncio
import re

import pytest
from every_route import WRITING, every_route, unknown
from running_app import RunningApp, text_part
from turns import say, texts

SERVED = """
/session/{sessionID}/abort /session/{sessionID}/editor /session/{sessionID}/permissions/{permissionID} /mcp-server /log
/permission/{requestID}/reply /question/{requestID}/reply /question/{requestID}/reject /auth/event-token
/api/session/{sessionID}/permission/{requestID}/reply /api/session/{sessionID}/question/{requestID}/reply
/api/session/{sessionID}/question/{requestID}/reject
"""
"""By POST: what a running turn may need, or a client that follows it. Of `/mcp-server` each tool asks a route of its own."""
HI = {"parts": [text_part("Hi")]}


async def test_what_would_start_or_change_work_is_refused_and_told_when_to_come_back(app: RunningApp) -> None:
    session = await app.create_session()
    app.services.draining.begin()
    for method, path in every_route(app.fastapi):
        if method in WRITING:
            response = await app.client.request(method, unknown(path), json={})
            served = method == "POST" and path in SERVED.split()
            assert (response.status_code == 503) == (not served), f"{method} {path}: {response.status_code}"
    refused = await app.client.post(f"/session/{session['id']}/message", json=HI)
    health = await app.client.get("/global/health")
    assert [(each.status_code, each.headers["retry-after"]) for each in (refused, health)] == [(503, "5")] * 2
    assert refused.json()["name"] == "ServerStoppingError" and await app.messages(session["id"]) == []
    assert health.json()["healthy"] is False and "stopping" in health.json()["reason"]


@pytest.mark.parametrize("path", ["message", "prompt_async"])
async def test_a_prompt_that_came_before_is_waited_for(app: RunningApp, path: str) -> None:
    app.provider.add([say("Answered.")])
    session = (await app.create_session(title="T"))["id"]
    async with app.services.store.lock(session):
        prompting = asyncio.create_task(app.client.post(f"/session/{session}/{path}", json=HI))
        while not app.services.draining.requests:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(app.services.wind_down())
        await asyncio.sleep(0)
        assert app.services.draining.has_begun and not stopping.done()
    await stopping
    assert (await prompting).is_success
    assert texts((await app.messages(session))[-1]) == ["Answered."]


@pytest.mark.parametrize(("query", "gets_hint"), [("?ids=true", True), ("", False)])
async def test_streams_end_and_who_asked_for_ids_is_told_when_to_come_back(app: RunningApp, query: str, gets_hint: bool) -> None:
    async with app.client.stream("GET", f"/event{query}") as response, asyncio.timeout(60):
        pieces = response.aiter_text()
        assert "server.connected" in await anext(pieces)
        await app.services.wind_down()
        rest = "".join([piece async for piece in pieces])
    assert bool(re.search(r'^retry: \d+\ndata: \{"id":"evt_\w+","type":"server.heartbeat".*\n\n\Z', rest, re.M)) == gets_hint
    async with app.events() as late, asyncio.timeout(60):
        await late.until_ended()
    assert late.types == ["server.connected"], "also one that is opened at the very end"
