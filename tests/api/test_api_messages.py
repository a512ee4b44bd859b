"""Messages and parts over HTTP: read in pages, correct, remove, prompt. What is refused: test_api_refusals.py."""

import asyncio
import json
from typing import Any

import pytest
from running_app import RunningApp, text_part

from app.api import event

PROMPT = {"parts": [text_part("hi")]}


async def talk(app: RunningApp, count: int = 1) -> str:
    """A session with `count` prompts, unanswered."""
    session = await app.create_session()
    for number in range(count):
        await app.prompt(session["id"], f"{number}", noReply=True)
    return str(session["id"])


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


async def page(app: RunningApp, session_id: str, **query: Any) -> tuple[list[str], str | None]:
    response = await app.client.get(f"/session/{session_id}/message", params=query)
    assert response.status_code == 200, response.text
    return texts(response.json()), response.headers.get("X-Next-Cursor")


async def test_a_stored_prompt_is_answered_with_as_it_is_read_with_its_fields(app: RunningApp) -> None:
    session = await app.create_session()
    sent = await app.prompt(session["id"], "hi", noReply=True)
    assert sent["info"]["role"] == "user" and sent["info"]["sessionID"] == session["id"]
    assert set(sent["info"]) == {"id", "sessionID", "role", "time", "agent", "model"}
    assert await app.messages(session["id"]) == [sent]
    assert await app.get(f"/session/{session['id']}/message/{sent['info']['id']}") == sent
    fields = {"system": "be brief", "agent": "plan", "variant": "high", "tools": {"bash": False}}
    sent = await app.prompt(session["id"], "hi", noReply=True, **fields)
    assert {key: sent["info"][key] for key in fields} == fields
    rules = (await app.get(f"/session/{session['id']}"))["permission"]
    assert rules == [{"permission": "bash", "pattern": "*", "action": "deny"}]


async def test_a_limit_gives_the_newest_oldest_first_and_a_cursor_walks_back_and_keeps_its_place(app: RunningApp) -> None:
    session_id, everything = await talk(app, 7), list("0123456")
    found = {"1": ["6"], "3": ["4", "5", "6"], "0": everything, "1e300": everything}
    assert {limit: (await page(app, session_id, limit=limit))[0] for limit in found} == found
    assert await page(app, session_id) == await page(app, session_id, limit=7) == (everything, None)
    for size in (1, 2, 5, 7):
        seen, cursor = await page(app, session_id, limit=size)
        while cursor is not None:
            older, cursor = await page(app, session_id, limit=size, before=cursor)
            assert older
            seen = older + seen
        assert seen == everything
    _, cursor = await page(app, session_id, limit=5)
    for limit in ("0", "0.5"):
        older, _ = await page(app, session_id, limit=limit, before=cursor)
        assert older and "2" not in older, "before a cursor there is a page whatever the limit"
    await app.prompt(session_id, "new", noReply=True)
    assert await page(app, session_id, limit=2, before=cursor) == (["0", "1"], None)


async def test_messages_of_clients_own_ids_stay_in_the_order_of_their_arrival(app: RunningApp) -> None:
    session = await app.create_session()
    for message_id in ("msg_zz", "msg_aa", 'msg_"é'):
        await app.prompt(session["id"], message_id, messageID=message_id, noReply=True)
    messages = await app.messages(session["id"])
    assert [message["info"]["id"] for message in messages] == texts(messages) == ["msg_zz", "msg_aa", 'msg_"é']


# Parts.


async def one_part(app: RunningApp) -> tuple[str, dict[str, Any]]:
    """A part and its address."""
    [message] = await app.messages(await talk(app))
    part = message["parts"][0]
    return f"/session/{part['sessionID']}/message/{part['messageID']}/part/{part['id']}", part


async def test_a_part_is_corrected_or_added_and_announced(app: RunningApp) -> None:
    path, part = await one_part(app)
    corrected = {**part, "text": "corrected", "metadata": {"by": "hand"}}
    async with app.events() as events:
        assert await app.call("PATCH", path, {**corrected, "unknown": 1}) == corrected
        changed = await events.until("message.part.updated")
    assert changed.properties == {"part": corrected, "sessionID": part["sessionID"], "time": changed.properties["time"]}
    assert (await app.messages(part["sessionID"]))[0]["parts"] == [corrected]
    await app.call("PATCH", path.rpartition("/")[0] + "/prt_added", {**part, "id": "prt_added", "text": "added"})
    assert texts(await app.messages(part["sessionID"])) == ["corrected", "added"]


async def test_a_part_that_is_none_or_not_where_it_says_is_refused(app: RunningApp) -> None:
    path, part = await one_part(app)
    for field, named in (("id", ["id"]), ("messageID", ["messageID"]), ("sessionID", ["sessionID"]), ("type", [])):
        error = await app.call("PATCH", path, {**part, field: part[field] + "x"}, expect=400)
        assert error["errors"][0]["path"] == named, field
    ended = {**part, "type": "tool", "callID": "c", "tool": "t", "state": {"status": "done"}}
    for wrong in ({**part, "text": None}, {}, {**part, "time": {"start": "9" * 30}}, ended):
        await app.call("PATCH", path, wrong, expect=400)
    assert (await app.messages(part["sessionID"]))[0]["parts"] == [part]
    message = path.partition("/part/")[0].replace(part["sessionID"], await talk(app))
    for method, elsewhere in (("GET", message), ("DELETE", message), ("DELETE", f"{message}/part/prt_1")):
        assert (await app.call(method, elsewhere, expect=404))["name"] == "NotFoundError", "it is of another session"


async def test_what_is_removed_is_gone_and_announced(app: RunningApp) -> None:
    path, part = await one_part(app)
    message, _, _ = path.partition("/part/")
    ids = {key: part[key] for key in ("sessionID", "messageID")}
    await app.prompt(part["sessionID"], "kept", noReply=True)
    async with app.events() as events:
        for _ in range(2):
            assert await app.call("DELETE", path) is True, "removing it again is no error"
        assert (await events.until("message.part.removed")).properties == {**ids, "partID": part["id"]}
        assert (await app.messages(part["sessionID"]))[0]["parts"] == []
        assert await app.call("DELETE", message) is True
        assert (await events.until("message.removed")).properties == ids
    assert texts(await app.messages(part["sessionID"])) == ["kept"]
    await app.call("DELETE", message, expect=404)


# Prompting.


async def test_an_answer_begins_with_a_newline_and_is_one_json_document(app: RunningApp) -> None:
    gate = asyncio.Event()
    app.provider.add([{"wait": gate}, {"text": "Hello."}])
    path = f"/session/{(await app.create_session())['id']}/message"
    async with app.client.stream("POST", path, json=PROMPT) as response:
        assert response.status_code == 200 and response.headers["content-type"] == "application/json"
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"\n"
        gate.set()
        answer = json.loads(b"".join([piece async for piece in pieces]))
    assert answer["info"]["role"] == "assistant" and texts([answer]) == ["Hello."]
    assert (await app.get(path))[1] == answer


async def test_a_prompt_in_the_background_is_acknowledged_when_stored(app: RunningApp) -> None:
    session = await app.create_session()
    async with app.events() as events:
        response = await app.client.post(f"/session/{session['id']}/prompt_async", json=PROMPT)
        assert (response.status_code, response.content) == (204, b"")
        assert texts(await app.messages(session["id"]))[:1] == ["hi"]
        await events.until("session.idle")
    assert texts(await app.messages(session["id"])) == ["hi", "ok"]


@pytest.mark.parametrize(("route", "body"), [("message", PROMPT), ("command", {"command": "init", "arguments": ""})])
async def test_opencodes_own_programs_have_read_the_events_when_an_answer_comes(
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
