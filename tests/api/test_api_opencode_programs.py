"""What OpenCode's own programs get beside what every client gets."""

import asyncio
from typing import Any

import pytest
from running_app import RunningApp, text_part

from app.api import event

PROMPT = {"parts": [text_part("hi")]}
COMMAND = {"command": "init", "arguments": ""}


@pytest.mark.parametrize(("route", "body"), [("message", PROMPT), ("command", COMMAND)])
async def test_they_have_read_the_events_when_an_answer_comes(
    app: RunningApp, route: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event, "EVENTS_AHEAD_SECONDS", 3600)
    path = f"/session/{(await app.create_session())['id']}/{route}"
    async with app.events() as events:
        waiting = asyncio.create_task(app.post(path, body, headers={"User-Agent": "opencode/1.18.33"}))
        await events.until("session.idle")
        await app.post(path, body, headers={"User-Agent": "curl/8 opencode/1.18.33"})
        assert not waiting.done()
        waiting.cancel()
