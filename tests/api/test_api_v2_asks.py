"""The second API: permission requests, saved approvals and questions, the same that the first API shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sse_reader import EventReader
from user_logins import user

COMMAND = {"tool": "bash", "args": {"command": "echo hi", "description": "greets"}, "id": "call_1"}
CHOICE = {"question": "Which?", "header": "Choice", "options": [{"label": "A", "description": "the first"}]}
QUESTION = {"tool": "question", "args": {"questions": [CHOICE]}, "id": "call_2"}


@asynccontextmanager
async def asked(app: RunningApp, call: dict[str, Any], event: str) -> AsyncIterator[tuple[dict[str, Any], EventReader]]:
    """A turn whose tool waits for an answer to the request that is given, as the first API has it."""
    await app.call("PATCH", "/config", {"permission": {"bash": "ask"}})
    app.provider.add([call], [{"text": "done"}])
    session = await app.create_session()
    async with app.events() as events:
        await app.prompt_async(session["id"], "go")
        yield (await events.until(event)).properties, events


def of_session(session_id: str, path: str) -> str:
    return f"/api/session/{session_id}/{path}"


async def test_a_permission_request_in_its_other_shape(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission.asked") as (request, events):
        session = request["sessionID"]
        call = request["tool"]
        expected = {
            "id": request["id"],
            "sessionID": session,
            "action": "bash",
            "resources": ["echo hi"],
            "save": request["always"],
            "source": {"type": "tool", "messageID": call["messageID"], "callID": "call_1"},
        }
        [shown] = (await app.get("/api/permission/request"))["data"]
        assert {name: shown[name] for name in expected} == expected
        assert await app.get(of_session(session, "permission")) == {"data": [shown]}
        assert await app.get(of_session(session, f"permission/{request['id']}")) == {"data": shown}
        assert await app.post(of_session(session, f"permission/{request['id']}/reply"), {"reply": "once"}, expect=204) is None
        await events.until("session.idle")
    assert (await app.get("/api/permission/request"))["data"] == []
    tools = [part for message in await app.messages(session) for part in message["parts"] if part["type"] == "tool"]
    assert tools[0]["state"]["output"].strip().startswith("hi")


async def test_what_always_approved_is_listed_and_deleted(app: RunningApp) -> None:
    async with asked(app, COMMAND, "permission.asked") as (request, events):
        await app.post(of_session(request["sessionID"], f"permission/{request['id']}/reply"), {"reply": "always"}, expect=204)
        await events.until("session.idle")
    project = (await app.get("/api/location"))["project"]["id"]
    [saved] = (await app.get("/api/permission/saved"))["data"]
    assert saved == {"id": saved["id"], "projectID": project, "action": "bash", "resource": request["always"][0]}
    assert (await app.get("/api/permission/saved", params={"projectID": "another"}))["data"] == []
    for unknown in ("psv_unknown", "none", "psv_!", "psv_bnVsbA"):
        await app.call("DELETE", f"/api/permission/saved/{unknown}", expect=204)
    assert (await app.get("/api/permission/saved"))["data"] == [saved]
    await app.call("DELETE", f"/api/permission/saved/{saved['id']}", expect=204)
    assert (await app.get("/api/permission/saved"))["data"] == []
    async with asked(app, COMMAND, "permission.asked") as (again, events):
        await app.post(f"/permission/{again['id']}/reply", {"reply": "reject"})
        await events.until("session.idle")


async def test_users_see_and_delete_their_own_approvals(tmp_path: Path) -> None:
    async with running_app(tmp_path, otherwise=[COMMAND]) as app:
        async with user(app, "anna") as anna, user(app, "ben") as ben:
            rules = [{"permission": "bash", "pattern": "*", "action": "ask"}]
            session = (await anna.create_session(permission=rules))["id"]
            created = await anna.post(of_session(session, "permission"), {"action": "bash", "resources": ["x"], "save": ["x *"]})
            path = of_session(session, f"permission/{created['data']['id']}")
            await ben.call("GET", path, expect=404)
            await ben.post(f"{path}/reply", {"reply": "always"}, expect=404)
            await anna.post(f"{path}/reply", {"reply": "always"}, expect=204)
            [saved] = (await anna.get("/api/permission/saved"))["data"]
            assert (saved["resource"], saved["owner"]) == ("x *", "anna")
            assert (await ben.get("/api/permission/saved"))["data"] == []
            await ben.call("DELETE", f"/api/permission/saved/{saved['id']}", expect=204)
            assert (await anna.get("/api/permission/saved"))["data"] == [saved]


# Requests of clients.


@pytest.fixture
async def session(app: RunningApp) -> str:
    rules = [
        {"permission": "bash", "pattern": "*", "action": "ask"},
        {"permission": "read", "pattern": "*", "action": "allow"},
        {"permission": "edit", "pattern": "*", "action": "deny"},
    ]
    return str((await app.create_session(permission=rules))["id"])


async def test_a_client_hears_what_the_rules_say(app: RunningApp, session: str) -> None:
    for action, effect in (("read", "allow"), ("edit", "deny"), ("bash", "ask")):
        answer = await app.post(of_session(session, "permission"), {"action": action, "resources": ["x"]})
        assert answer["data"]["effect"] == effect
        waiting = [request["id"] for request in (await app.get(of_session(session, "permission")))["data"]]
        assert waiting == ([answer["data"]["id"]] if effect == "ask" else [])


async def test_a_clients_request_is_replied_to_once_by_an_event(app: RunningApp, session: str) -> None:
    source = {"type": "tool", "messageID": "msg_1", "callID": "call_1"}
    body = {"id": "per_mine", "action": "bash", "resources": ["ls -l"], "save": ["ls *"], "metadata": {"a": 1}, "source": source}
    async with app.events() as events:
        assert await app.post(of_session(session, "permission"), body) == {"data": {"id": "per_mine", "effect": "ask"}}
        assert (await events.until("permission.asked")).properties["patterns"] == ["ls -l"]
        assert (await app.get(of_session(session, "permission/per_mine")))["data"] == {**body, "sessionID": session}
        await app.post(of_session(session, "permission/per_mine/reply"), {"reply": "always"}, expect=204)
        assert (await events.until("permission.replied")).properties["reply"] == "always"
    again = await app.post(of_session(session, "permission"), {"action": "bash", "resources": ["ls -a"], "save": []})
    assert again["data"]["effect"] == "allow", "what always approved holds for clients too"
    refusal = await app.post(of_session(session, "permission/per_mine/reply"), {"reply": "once"}, expect=404)
    assert (refusal["_tag"], refusal["requestID"]) == ("PermissionNotFoundError", "per_mine")


async def test_requests_have_ids_of_their_own_are_of_their_session_alone_and_bounded(app: RunningApp, session: str) -> None:
    body = {"action": "bash", "resources": ["x"]}
    named = {**body, "id": "per_mine"}
    await app.post(of_session(session, "permission"), named)
    assert (await app.post(of_session(session, "permission"), named, expect=409))["_tag"] == "ConflictError"
    other = (await app.create_session())["id"]
    assert (await app.get(of_session(other, "permission")))["data"] == []
    await app.post(of_session(other, "permission/per_mine/reply"), {"reply": "once"}, expect=404)
    for _ in range(99):
        await app.post(of_session(session, "permission"), body)
    assert (await app.post(of_session(session, "permission"), body, expect=429))["_tag"] == "TooManyRequestsError"
    json_type = {"content-type": "application/json"}
    response = await app.client.post(of_session(session, "permission"), content=b"{bad", headers=json_type)
    assert (response.status_code, response.json()["_tag"], response.json()["kind"]) == (400, "InvalidRequestError", "Payload")


async def test_a_clients_request_outlives_the_server(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        rules = [{"permission": "bash", "pattern": "*", "action": "ask"}]
        session = (await app.create_session(permission=rules))["id"]
        await app.post(of_session(session, "permission"), {"id": "per_mine", "action": "bash", "resources": ["x"]})
    async with running_app(tmp_path) as app:
        assert [each["id"] for each in (await app.get("/api/permission/request"))["data"]] == ["per_mine"]
        await app.post(of_session(session, "permission/per_mine/reply"), {"reply": "once"}, expect=204)
        assert (await app.get("/api/permission/request"))["data"] == []


# Questions.


async def test_a_question_is_answered(app: RunningApp) -> None:
    async with asked(app, QUESTION, "question.asked") as (request, events):
        session = request["sessionID"]
        assert (await app.get("/api/question/request"))["data"] == [request]
        assert await app.get(of_session(session, "question")) == {"data": [request]}
        path = of_session(session, f"question/{request['id']}/reply")
        assert await app.post(path, {"answers": [["A"]]}, expect=204) is None
        assert (await events.until("question.replied")).properties["answers"] == [["A"]]
        await events.until("session.idle")
    assert (await app.get("/api/question/request"))["data"] == []


async def test_a_question_is_dismissed(app: RunningApp) -> None:
    async with asked(app, QUESTION, "question.asked") as (request, events):
        await app.post(of_session(request["sessionID"], f"question/{request['id']}/reject"), expect=204)
        await events.until("question.rejected")
        await events.until("session.idle")
