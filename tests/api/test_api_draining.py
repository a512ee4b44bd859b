"""A server that is told to stop: which requests it refuses, and what it waits for."""

import asyncio
import re
from pathlib import Path

import pytest
from every_route import WRITING, every_route, unknown
from running_app import RunningApp, running_app, text_part
from turns import say, texts

SERVED = {
    ("POST", "/session/{sessionID}/abort"),
    ("POST", "/permission/{requestID}/reply"),
    ("POST", "/session/{sessionID}/permissions/{permissionID}"),
    ("POST", "/session/{sessionID}/editor"),
    ("POST", "/question/{requestID}/reply"),
    ("POST", "/question/{requestID}/reject"),
    ("POST", "/auth/event-token"),
    ("POST", "/log"),
    ("POST", "/mcp-server"),
    ("POST", "/api/session/{sessionID}/permission/{requestID}/reply"),
    ("POST", "/api/session/{sessionID}/question/{requestID}/reply"),
    ("POST", "/api/session/{sessionID}/question/{requestID}/reject"),
}
"""What a running turn may need, or a client that follows it. Of the tools at `/mcp-server` each asks a route of its own."""


async def test_every_route_that_would_start_or_change_work_is_refused(app: RunningApp) -> None:
    app.services.draining.begin()
    for method, path in every_route(app.fastapi):
        if method in WRITING:
            response = await app.client.request(method, unknown(path), json={})
            assert (response.status_code == 503) == ((method, path) not in SERVED), f"{method} {path}: {response.status_code}"


async def test_the_refusal_and_the_health_check_tell_when_to_come_back(app: RunningApp) -> None:
    session = await app.create_session()
    app.services.draining.begin()
    body = {"parts": [text_part("Hi")]}
    refused, health = (
        await app.client.post(f"/session/{session['id']}/message", json=body),
        await app.client.get("/global/health"),
    )
    assert [(each.status_code, each.headers["retry-after"]) for each in (refused, health)] == [(503, "5")] * 2
    assert refused.json()["name"] == "ServerStoppingError" and await app.messages(session["id"]) == []
    assert health.json()["healthy"] is False and "stopping" in health.json()["reason"]


@pytest.mark.parametrize("path", ["message", "prompt_async"])
async def test_a_prompt_that_came_before_is_waited_for(tmp_path: Path, path: str) -> None:
    async with running_app(tmp_path, turns=[[say("Answered.")]]) as app:
        session = (await app.create_session(title="T"))["id"]
        async with app.services.store.lock(session):
            body = {"parts": [text_part("Hi")]}
            prompting = asyncio.create_task(app.client.post(f"/session/{session}/{path}", json=body))
            while not app.services.draining.requests:
                await asyncio.sleep(0)
            stopping = asyncio.create_task(app.fastapi.state.server.wind_down())
            await asyncio.sleep(0)
            assert app.services.draining.has_begun and not stopping.done()
        await stopping
        assert (await prompting).is_success
        assert texts((await app.messages(session))[-1]) == ["Answered."]


async def test_an_event_stream_that_is_opened_at_the_very_end_ends(app: RunningApp) -> None:
    await app.fastapi.state.server.wind_down()
    async with app.events() as events, asyncio.timeout(60):
        await events.when(lambda: events.ended)
    assert events.types == ["server.connected"]


@pytest.mark.parametrize(("query", "gets_hint"), [("?ids=true", True), ("", False)])
async def test_who_asked_for_ids_is_told_when_to_come_back(app: RunningApp, query: str, gets_hint: bool) -> None:
    async with app.client.stream("GET", f"/event{query}") as response, asyncio.timeout(60):
        pieces = response.aiter_text()
        assert "server.connected" in await anext(pieces)
        await app.fastapi.state.server.wind_down()
        rest = "".join([piece async for piece in pieces])
    assert bool(re.search(r'^retry: \d+\ndata: \{"id":"evt_\w+","type":"server.heartbeat".*\n\n\Z', rest, re.M)) == gets_hint
