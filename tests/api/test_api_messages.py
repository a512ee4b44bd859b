"""Messages and parts over HTTP: read in pages, correct, remove."""

import asyncio
from typing import Any

import pytest
from running_app import RunningApp, text_part

CURSOR = "X-Next-Cursor"


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
    return texts(response.json()), response.headers.get(CURSOR)


async def test_a_stored_prompt_is_answered_with_as_it_is_read(app: RunningApp) -> None:
    session = await app.create_session()
    sent = await app.prompt(session["id"], "hi", noReply=True)
    assert sent["info"]["role"] == "user" and sent["info"]["sessionID"] == session["id"]
    assert set(sent["info"]) == {"id", "sessionID", "role", "time", "agent", "model"}
    assert await app.messages(session["id"]) == [sent]
    assert await app.get(f"/session/{session['id']}/message/{sent['info']['id']}") == sent


@pytest.mark.parametrize(
    ("limit", "expected"), [("1", ["4"]), ("3", ["2", "3", "4"]), ("0", list("01234")), ("1e300", list("01234"))]
)
async def test_a_limit_gives_the_newest_oldest_first(app: RunningApp, limit: str, expected: list[str]) -> None:
    session_id = await talk(app, 5)
    assert (await page(app, session_id, limit=limit))[0] == expected


@pytest.mark.parametrize("size", [1, 2, 5, 7])
async def test_a_cursor_walks_back_through_all_pages(app: RunningApp, size: int) -> None:
    session_id = await talk(app, 7)
    seen, cursor = await page(app, session_id, limit=size)
    while cursor is not None:
        older, cursor = await page(app, session_id, limit=size, before=cursor)
        assert older
        seen = older + seen
    assert seen == [str(number) for number in range(7)]


async def test_a_page_keeps_its_place_while_messages_arrive(app: RunningApp) -> None:
    session_id = await talk(app, 4)
    _, cursor = await page(app, session_id, limit=2)
    await app.prompt(session_id, "new", noReply=True)
    assert await page(app, session_id, limit=2, before=cursor) == (["0", "1"], None)


async def test_all_messages_have_no_cursor(app: RunningApp) -> None:
    session_id = await talk(app, 3)
    assert await page(app, session_id) == (["0", "1", "2"], None)
    assert await page(app, session_id, limit=3) == (["0", "1", "2"], None)


@pytest.mark.parametrize("limit", ["0", "0.5"])
async def test_before_a_cursor_there_is_a_page_whatever_the_limit(app: RunningApp, limit: str) -> None:
    session_id = await talk(app, 3)
    _, cursor = await page(app, session_id, limit=1)
    found, _ = await page(app, session_id, limit=limit, before=cursor)
    assert found and "2" not in found


async def test_messages_of_clients_own_ids_stay_in_the_order_of_their_arrival(app: RunningApp) -> None:
    session = await app.create_session()
    for message_id in ("msg_zz", "msg_aa", 'msg_"é'):
        await app.prompt(session["id"], message_id, messageID=message_id, noReply=True)
    messages = await app.messages(session["id"])
    assert [message["info"]["id"] for message in messages] == texts(messages) == ["msg_zz", "msg_aa", 'msg_"é']


async def test_an_unknown_message_is_not_found(app: RunningApp) -> None:
    session_id = await talk(app)
    other = await talk(app)
    theirs = (await app.messages(other))[0]["info"]["id"]
    for message_id in ("msg_nope", theirs):
        assert (await app.get(f"/session/{session_id}/message/{message_id}", expect=404))["name"] == "NotFoundError"
        await app.call("DELETE", f"/session/{session_id}/message/{message_id}", expect=404)
        await app.call("DELETE", f"/session/{session_id}/message/{message_id}/part/prt_1", expect=404)
    await app.get(f"/session/{session_id}/message/foo", expect=400)


# Parts.


async def one_part(app: RunningApp) -> tuple[str, dict[str, Any]]:
    """A part and its address."""
    session_id = await talk(app)
    [message] = await app.messages(session_id)
    part = message["parts"][0]
    return f"/session/{session_id}/message/{message['info']['id']}/part/{part['id']}", part


async def test_a_corrected_part_is_stored_and_announced(app: RunningApp) -> None:
    path, part = await one_part(app)
    corrected = {**part, "text": "corrected", "metadata": {"by": "hand"}}
    async with app.events() as events:
        assert await app.call("PATCH", path, {**corrected, "unknown": 1}) == corrected
        changed = await events.until("message.part.updated")
    assert changed.properties == {"part": corrected, "sessionID": part["sessionID"], "time": changed.properties["time"]}
    assert (await app.messages(part["sessionID"]))[0]["parts"] == [corrected]


async def test_a_part_may_be_added(app: RunningApp) -> None:
    path, part = await one_part(app)
    added = {**part, "id": "prt_added", "text": "added"}
    await app.call("PATCH", path.rpartition("/")[0] + "/prt_added", added)
    assert texts(await app.messages(part["sessionID"])) == ["0", "added"]


@pytest.mark.parametrize("field", ["id", "messageID", "sessionID"])
async def test_a_part_that_is_not_where_it_says_is_refused(app: RunningApp, field: str) -> None:
    path, part = await one_part(app)
    error = await app.call("PATCH", path, {**part, field: part[field] + "x"}, expect=400)
    assert error["errors"][0]["path"] == [field]
    assert (await app.messages(part["sessionID"]))[0]["parts"] == [part]


@pytest.mark.parametrize("wrong", [{}, {"type": "picture"}, {"text": None}])
async def test_what_is_no_part_is_refused(app: RunningApp, wrong: dict[str, Any]) -> None:
    path, part = await one_part(app)
    await app.call("PATCH", path, {**part, **wrong} if wrong else {}, expect=400)


async def test_a_removed_part_is_gone_and_removing_it_again_is_no_error(app: RunningApp) -> None:
    path, part = await one_part(app)
    async with app.events() as events:
        for _ in range(2):
            assert await app.call("DELETE", path) is True
        removed = await events.until("message.part.removed")
    assert removed.properties == {"sessionID": part["sessionID"], "messageID": part["messageID"], "partID": part["id"]}
    assert (await app.messages(part["sessionID"]))[0]["parts"] == []


# Removing messages.


async def test_a_removed_message_is_gone_with_its_parts(app: RunningApp) -> None:
    session_id = await talk(app, 3)
    second = (await app.messages(session_id))[1]["info"]["id"]
    async with app.events() as events:
        assert await app.call("DELETE", f"/session/{session_id}/message/{second}") is True
        removed = await events.until("message.removed")
    assert removed.properties == {"sessionID": session_id, "messageID": second}
    assert texts(await app.messages(session_id)) == ["0", "2"]
    await app.call("DELETE", f"/session/{session_id}/message/{second}", expect=404)


async def test_while_the_session_is_busy_no_message_is_removed(app: RunningApp) -> None:
    gate = asyncio.Event()
    app.provider.add([{"wait": gate}, {"text": "done"}])
    session_id = await talk(app)
    first = (await app.messages(session_id))[0]["info"]["id"]
    async with app.events() as events:
        await app.prompt_async(session_id, "go")
        await events.until("session.status")
        error = await app.call("DELETE", f"/session/{session_id}/message/{first}", expect=409)
        assert error["name"] == "SessionBusyError" and error["data"]["sessionID"] == session_id
        gate.set()
        await events.until("session.idle")
    assert await app.call("DELETE", f"/session/{session_id}/message/{first}") is True


# Prompting.


async def test_an_answer_begins_with_a_newline_and_is_one_json_document(app: RunningApp) -> None:
    gate = asyncio.Event()
    app.provider.add([{"wait": gate}, {"text": "Hello."}])
    session = await app.create_session()
    body = {"parts": [text_part("hi")]}
    async with app.client.stream("POST", f"/session/{session['id']}/message", json=body) as response:
        assert response.status_code == 200 and response.headers["content-type"] == "application/json"
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"\n"
        gate.set()
        rest = b"".join([piece async for piece in pieces])
    import json

    answer = json.loads(b"\n" + rest)
    assert answer["info"]["role"] == "assistant" and texts([answer]) == ["Hello."]
    assert (await app.messages(session["id"]))[1] == answer


async def test_a_prompt_in_the_background_is_acknowledged_when_stored(app: RunningApp) -> None:
    session = await app.create_session()
    async with app.events() as events:
        response = await app.client.post(f"/session/{session['id']}/prompt_async", json={"parts": [text_part("hi")]})
        assert (response.status_code, response.content) == (204, b"")
        assert texts(await app.messages(session["id"]))[:1] == ["hi"]
        await events.until("session.idle")
    assert texts(await app.messages(session["id"])) == ["hi", "ok"]


async def test_a_prompt_sent_twice_is_stored_once(app: RunningApp) -> None:
    session = await app.create_session()
    first = await app.prompt(session["id"], "hi", messageID="msg_mine")
    again = await app.prompt(session["id"], "hi", messageID="msg_mine")
    assert again == first and len(await app.messages(session["id"])) == 2
    error = await app.prompt(session["id"], "something else", messageID="msg_mine", expect=409)
    assert error["name"] == "ConflictError"
    assert texts(await app.messages(session["id"])) == ["hi", "ok"]


async def test_the_fields_of_a_prompt_are_kept_with_it(app: RunningApp) -> None:
    session = await app.create_session()
    sent = await app.prompt(
        session["id"], "hi", noReply=True, system="be brief", agent="plan", variant="high", tools={"bash": False}
    )
    assert {key: sent["info"][key] for key in ("system", "agent", "variant", "tools")} == {
        "system": "be brief",
        "agent": "plan",
        "variant": "high",
        "tools": {"bash": False},
    }
    rules = (await app.get(f"/session/{session['id']}"))["permission"]
    assert rules == [{"permission": "bash", "pattern": "*", "action": "deny"}]


async def test_an_attached_file_is_read(app: RunningApp) -> None:
    session = await app.create_session()
    attached = {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": (app.directory / "a.txt").as_uri()}
    sent = await app.post(f"/session/{session['id']}/message", {"noReply": True, "parts": [attached]})
    assert any("hello" in text for text in texts([sent]))
    assert sent["parts"][-1]["type"] == "file"
