"""Permission requests, saved approvals and questions in both APIs, which show the same ones; what becomes of the turn is in
tests/flows/test_asking.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sse_reader import EventReader
from turns import bash, call, say, tools

COMMAND = bash("echo hi", "call_1")
CHOICE = {"question": "Which?", "header": "Choice", "options": [{"label": "A", "description": "the first"}]}
QUESTION = call("question", "call_2", questions=[CHOICE])
RULES = [
    {"permission": permission, "pattern": "*", "action": action}
    for permission, action in (("bash", "ask"), ("read", "allow"), ("edit", "deny"))
]
ASKED = {"action": "bash", "resources": ["x"]}


@asynccontextmanager
async def asked(app: RunningApp, step: dict[str, Any] = COMMAND) -> AsyncIterator[tuple[dict[str, Any], EventReader]]:
    """A turn whose tool waits for an answer to the request that is given, as the first API has it. It ends with the block."""
    await app.call("PATCH", "/config", {"permission": {"bash": "ask"}})
    app.provider.add([step], [say("done")])
    session = await app.create_session()
    async with app.events() as events:
        await app.prompt_async(session["id"], "go")
        request = await events.until("permission.asked" if step is COMMAND else "question.asked")
        yield request.properties, events
        await events.until("session.idle")


def of_session(session_id: str, path: str) -> str:
    return f"/api/session/{session_id}/{path}"


async def saved(app: RunningApp, **query: str) -> Any:
    return (await app.get("/api/permission/saved", params=query))["data"]


# Of turns.


async def test_a_permission_is_listed_answered_and_gone_in_both_shapes(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    async with asked(app) as (request, events):
        session, made_by = request["sessionID"], request["tool"]
        assert await app.get("/permission") == [request]
        assert await app.get("/permission", params={"directory": str(inside)}) == [], "it is asked of its directory alone"
        assert (request["permission"], request["patterns"], made_by["callID"]) == ("bash", ["echo hi"], "call_1")
        [shown] = (await app.get("/api/permission/request"))["data"]
        assert (
            shown.items()
            >= {
                "id": request["id"],
                "sessionID": session,
                "action": "bash",
                "resources": ["echo hi"],
                "save": request["always"],
                "source": {"type": "tool", "messageID": made_by["messageID"], "callID": "call_1"},
            }.items()
        )
        assert await app.get(of_session(session, "permission")) == {"data": [shown]}
        assert await app.get(of_session(session, f"permission/{request['id']}")) == {"data": shown}
        assert await app.post(f"/permission/{request['id']}/reply", {"reply": "once"}) is True
        replied = await events.until("permission.replied")
        assert replied.properties == {"sessionID": session, "requestID": request["id"], "reply": "once"}
    assert await app.get("/permission") == (await app.get("/api/permission/request"))["data"] == []
    assert tools(await app.messages(session))[0]["state"]["output"].strip().startswith("hi")


async def test_of_two_answers_at_once_by_the_old_route_one_counts(app: RunningApp) -> None:
    async with asked(app) as (request, events):
        path = f"/session/{request['sessionID']}/permissions/{request['id']}"
        replies = await asyncio.gather(*(app.client.post(path, json={"response": "once"}) for _ in range(3)))
        assert sorted(reply.status_code for reply in replies) == [200, 404, 404]
    assert len(events.of_type("permission.replied")) == 1


async def test_what_always_approved_is_listed_and_deleted(app: RunningApp) -> None:
    async with asked(app) as (request, _):
        reply = of_session(request["sessionID"], f"permission/{request['id']}/reply")
        assert await app.post(reply, {"reply": "always"}, expect=204) is None
    [approval] = await saved(app)
    project = (await app.get("/api/location"))["project"]["id"]
    assert approval == {"id": approval["id"], "projectID": project, "action": "bash", "resource": request["always"][0]}
    assert await saved(app, projectID="another") == []
    for unknown in ("psv_unknown", "none"):
        await app.call("DELETE", f"/api/permission/saved/{unknown}", expect=204)
    assert await saved(app) == [approval]
    await app.call("DELETE", f"/api/permission/saved/{approval['id']}", expect=204)
    assert await saved(app) == []
    async with asked(app) as (again, _):
        await app.post(f"/permission/{again['id']}/reply", {"reply": "reject"})


async def test_users_see_and_delete_their_own_approvals(anna: RunningApp, bert: RunningApp) -> None:
    session = (await anna.create_session(permission=RULES))["id"]
    created = await anna.post(of_session(session, "permission"), {**ASKED, "save": ["x *"]})
    path = of_session(session, f"permission/{created['data']['id']}")
    await bert.get(path, expect=404)
    await bert.post(f"{path}/reply", {"reply": "always"}, expect=404)
    await anna.post(f"{path}/reply", {"reply": "always"}, expect=204)
    [approval] = await saved(anna)
    assert (approval["resource"], approval["owner"]) == ("x *", "anna")
    assert await saved(bert) == []
    await bert.call("DELETE", f"/api/permission/saved/{approval['id']}", expect=204)
    assert await saved(anna) == [approval]


async def test_a_question_is_answered_or_dismissed(app: RunningApp) -> None:
    async with asked(app, QUESTION) as (request, events):
        path = of_session(request["sessionID"], "question")
        assert (await app.get("/api/question/request"))["data"] == (await app.get(path))["data"] == [request]
        assert await app.post(f"{path}/{request['id']}/reply", {"answers": [["A"]]}, expect=204) is None
        assert (await events.until("question.replied")).properties["answers"] == [["A"]]
    assert (await app.get("/api/question/request"))["data"] == []
    async with asked(app, QUESTION) as (request, events):
        await app.post(of_session(request["sessionID"], f"question/{request['id']}/reject"), expect=204)
        await events.until("question.rejected")


# Of clients.


@pytest.fixture
async def path(app: RunningApp) -> str:
    """Where permissions are asked for, in a session with RULES."""
    return of_session((await app.create_session(permission=RULES))["id"], "permission")


async def test_a_client_hears_what_the_rules_say(app: RunningApp, path: str) -> None:
    for action, effect in (("read", "allow"), ("edit", "deny"), ("bash", "ask")):
        answer = (await app.post(path, {"action": action, "resources": ["x"]}))["data"]
        waiting = [request["id"] for request in (await app.get(path))["data"]]
        assert (answer["effect"], waiting) == (effect, [answer["id"]] if effect == "ask" else [])


async def test_a_clients_request_is_replied_to_once_by_an_event(app: RunningApp, path: str) -> None:
    source = {"type": "tool", "messageID": "msg_1", "callID": "call_1"}
    body = {"id": "per_mine", "action": "bash", "resources": ["ls -l"], "save": ["ls *"], "metadata": {"a": 1}, "source": source}
    async with app.events() as events:
        assert await app.post(path, body) == {"data": {"id": "per_mine", "effect": "ask"}}
        assert (await events.until("permission.asked")).properties["patterns"] == ["ls -l"]
        assert (await app.get(f"{path}/per_mine"))["data"] == {**body, "sessionID": path.split("/")[3]}
        await app.post(f"{path}/per_mine/reply", {"reply": "always"}, expect=204)
        assert (await events.until("permission.replied")).properties["reply"] == "always"
    again = await app.post(path, {"action": "bash", "resources": ["ls -a"], "save": []})
    assert again["data"]["effect"] == "allow", "what always approved holds for clients too"
    refusal = await app.post(f"{path}/per_mine/reply", {"reply": "once"}, expect=404)
    assert (refusal["_tag"], refusal["requestID"]) == ("PermissionNotFoundError", "per_mine")


async def test_requests_have_ids_of_their_own_are_of_their_session_alone_and_bounded(app: RunningApp, path: str) -> None:
    named = {**ASKED, "id": "per_mine"}
    await app.post(path, named)
    assert (await app.post(path, named, expect=409))["_tag"] == "ConflictError"
    other = of_session((await app.create_session())["id"], "permission")
    assert (await app.get(other))["data"] == []
    await app.post(f"{other}/per_mine/reply", {"reply": "once"}, expect=404)
    for _ in range(99):
        await app.post(path, ASKED)
    assert (await app.post(path, ASKED, expect=429))["_tag"] == "TooManyRequestsError"
    refusal = await app.post(path, expect=400, content=b"{bad", headers={"content-type": "application/json"})
    assert (refusal["_tag"], refusal["kind"]) == ("InvalidRequestError", "Payload")


async def test_a_clients_request_outlives_the_server(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        path = of_session((await app.create_session(permission=RULES))["id"], "permission")
        await app.post(path, {**ASKED, "id": "per_mine"})
    async with running_app(tmp_path) as app:
        assert [each["id"] for each in (await app.get("/api/permission/request"))["data"]] == ["per_mine"]
        await app.post(f"{path}/per_mine/reply", {"reply": "once"}, expect=204)
        assert (await app.get("/api/permission/request"))["data"] == []
