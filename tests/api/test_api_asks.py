"""What waits for a person: permissions and questions over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from running_app import RunningApp
from sse_reader import EventReader

COMMAND = {"tool": "bash", "args": {"command": "echo hi", "description": "greets"}, "id": "call_1"}
QUESTION = {
    "question": "Which?",
    "header": "Choice",
    "options": [{"label": "A", "description": "the first"}, {"label": "B", "description": "the second"}],
}
ASKING = {"tool": "question", "args": {"questions": [QUESTION]}, "id": "call_1"}


@asynccontextmanager
async def asked(app: RunningApp, call: dict[str, Any], kind: str) -> AsyncIterator[tuple[dict[str, Any], EventReader]]:
    """A turn whose tool waits for an answer to the request that is given."""
    await app.call("PATCH", "/config", {"permission": {"bash": "ask", "question": "allow"}})
    app.provider.add([call], [{"text": "done"}])
    session = await app.create_session()
    async with app.events() as events:
        await app.prompt_async(session["id"], "go")
        request = (await events.until(f"{kind}.asked")).properties
        yield request, events


async def tool_state(app: RunningApp, session_id: str) -> dict[str, Any]:
    parts = [part for message in await app.messages(session_id) for part in message["parts"] if part["type"] == "tool"]
    state: dict[str, Any] = parts[0]["state"]
    return state


async def test_a_permission_is_listed_answered_and_gone(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        assert await app.get("/permission") == [request]
        assert request["permission"] == "bash" and request["patterns"] == ["echo hi"]
        assert request["tool"]["callID"] == "call_1"
        assert await app.post(f"/permission/{request['id']}/reply", {"reply": "once"}) is True
        replied = await events.until("permission.replied")
        assert replied.properties == {"sessionID": request["sessionID"], "requestID": request["id"], "reply": "once"}
        await events.until("session.idle")
    assert await app.get("/permission") == []
    assert (await tool_state(app, request["sessionID"]))["output"].strip().startswith("hi")


async def test_a_refusal_with_a_reason_is_told_to_the_model(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        await app.post(f"/permission/{request['id']}/reply", {"reply": "reject", "message": "use printf"})
        await events.until("session.idle")
    state = await tool_state(app, request["sessionID"])
    assert state["status"] == "error" and "use printf" in state["error"]


async def test_always_is_remembered_for_the_project(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        await app.post(f"/permission/{request['id']}/reply", {"reply": "always"})
        await events.until("session.idle")
    app.provider.add([COMMAND], [{"text": "done"}])
    other = await app.create_session()
    await app.prompt(other["id"], "again")
    assert (await tool_state(app, other["id"]))["status"] == "completed"


async def test_the_old_route_answers_too(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        path = f"/session/{request['sessionID']}/permissions/{request['id']}"
        assert await app.post(path, {"response": "once"}) is True
        await events.until("session.idle")


async def test_a_permission_is_asked_of_its_directory_alone(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    async with asked(app, COMMAND, "permission") as (request, events):
        assert await app.get("/permission", params={"directory": str(inside)}) == []
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await events.until("session.idle")


async def test_of_two_answers_at_once_one_counts(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        path = f"/permission/{request['id']}/reply"
        replies = await asyncio.gather(*(app.client.post(path, json={"reply": "once"}) for _ in range(3)))
        assert sorted(reply.status_code for reply in replies) == [200, 404, 404]
        await events.until("session.idle")
        assert len(events.of_type("permission.replied")) == 1


async def test_a_question_is_listed_answered_and_gone(app: RunningApp) -> None:
    async with asked(app, ASKING, "question") as (request, events):
        assert await app.get("/question") == [request]
        assert request["questions"][0]["question"] == "Which?"
        assert await app.post(f"/question/{request['id']}/reply", {"answers": [["B"]]}) is True
        replied = await events.until("question.replied")
        assert replied.properties["answers"] == [["B"]]
        await events.until("session.idle")
    assert await app.get("/question") == []
    assert "B" in (await tool_state(app, request["sessionID"]))["output"]


async def test_a_question_may_be_dismissed(app: RunningApp) -> None:
    async with asked(app, ASKING, "question") as (request, events):
        assert await app.post(f"/question/{request['id']}/reject") is True
        await events.until("question.rejected")
        await events.until("session.idle")
    assert (await tool_state(app, request["sessionID"]))["status"] == "error"


async def test_an_abort_withdraws_what_was_asked(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission") as (request, events):
        await app.post(f"/session/{request['sessionID']}/abort")
        await events.until("session.idle")
    assert await app.get("/permission") == []
    await app.post(f"/permission/{request['id']}/reply", {"reply": "once"}, expect=404)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/permission/per_nope/reply", {"reply": "once"}, 404),
        ("/permission/foo/reply", {"reply": "once"}, 400),
        ("/permission/per_nope/reply", {"reply": "maybe"}, 400),
        ("/permission/per_nope/reply", {}, 400),
        ("/session/ses_nope/permissions/per_nope", {"response": "once"}, 404),
        ("/session/ses_nope/permissions/per_nope", {"response": "x"}, 400),
        ("/question/que_nope/reply", {"answers": [["A"]]}, 404),
        ("/question/que_nope/reply", {"answers": "A"}, 400),
        ("/question/foo/reply", {"answers": []}, 400),
        ("/question/que_nope/reject", None, 404),
    ],
)
async def test_what_is_not_asked_cannot_be_answered(app: RunningApp, path: str, body: Any, status: int) -> None:
    error = await app.post(path, body, expect=status)
    assert error["name"] == ("NotFoundError" if status == 404 else "BadRequest")
