"""Requests that change one session at once, as clients send them: nothing is lost, and a listener has heard what is stored."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from event_fold import EventFold, folding
from running_app import RunningApp, running_app, text_part
from turns import until

MANY = 5
"""Of each kind."""


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path) as running:
        yield running


async def put(app: RunningApp, method: str, path: str, body: Any = None) -> None:
    """Until it is not refused because of another that is at work."""
    while (response := await app.client.request(method, path, json=body)).status_code == 409:
        await asyncio.sleep(0.01)
    assert response.is_success, response.text


def changes(session: str, parts: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    path = f"/session/{session}"
    made: list[tuple[str, str, Any]] = []
    for number in range(MANY):
        part = parts[number]
        rule = {"permission": "bash", "pattern": f"{number}", "action": "deny"}
        prompt = {"messageID": f"msg_zz{number}", "noReply": True, "parts": [text_part(f"prompt {number}")]}
        made += [
            ("PATCH", path, {"title": f"T{number}"}),
            ("PATCH", path, {"permission": [rule]}),
            ("PATCH", path, {"time": {"archived": 1000 + number}}),
            ("POST", f"{path}/share", None),
            ("DELETE", f"{path}/share", None),
            ("POST", f"{path}/message", prompt),
            ("POST", f"/api{path}/agent", {"agent": ["build", "plan"][number % 2]}),
            ("PATCH", f"{path}/message/{part['messageID']}/part/{part['id']}", {**part, "text": f"again {number}"}),
        ]
    return made


async def settled(app: RunningApp, fold: EventFold) -> None:
    """All that was announced so far is heard."""
    marker = (await app.create_session(title="marker"))["id"]
    await until(lambda: marker in fold.sessions)


async def test_requests_that_change_a_session_at_once_lose_nothing(app: RunningApp) -> None:
    async with folding(app.client) as fold:
        session = (await app.create_session(title="T"))["id"]
        said = await app.prompt(session, "0", noReply=True, parts=[text_part(str(number)) for number in range(MANY)])
        await asyncio.gather(*(put(app, *change) for change in changes(session, said["parts"])))
        await settled(app, fold)
        found, messages = await app.get(f"/session/{session}"), await app.messages(session)
        assert found["title"] in {f"T{number}" for number in range(MANY)} and found["time"]["archived"] in range(
            1000, 1000 + MANY
        )
        assert sorted(rule["pattern"] for rule in found["permission"]) == [str(number) for number in range(MANY)]
        assert [part["text"] for part in messages[0]["parts"]] == [f"again {number}" for number in range(MANY)]
        assert {message["info"]["id"] for message in messages[1:]} == {f"msg_zz{number}" for number in range(MANY)}
        known = fold.sessions[session]
        assert fold.wrong == [] and known.info == found
        assert [message.as_read() for message in known.messages.values()] == messages
        if "share" in found:
            shared = await app.client.get(found["share"]["url"])
            assert shared.is_success
