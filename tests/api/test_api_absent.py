"""What OpenCode's clients ask of features that are not here: "none", or a refusal, as OpenCode's description has it."""

from typing import Any

from running_app import RunningApp

ANSWERS: list[tuple[str, Any, Any]] = [
    ("GET /experimental/capabilities", None, {"backgroundSubagents": False}),
    ("GET /experimental/console", None, {"consoleManagedProviders": [], "switchableOrgCount": 0}),
    ("GET /experimental/console/orgs", None, {"orgs": []}),
    *((f"GET /experimental/workspace{below}", None, []) for below in ("", "/adapter", "/status")),
    ("POST /sync/start", None, True),
    ("POST /sync/history", {"ses_1": 3}, []),
]
WARP, MOVE = "/experimental/workspace/warp", "/experimental/control-plane/move-session"


async def test_there_are_none(app: RunningApp) -> None:
    for request, body, answer in ANSWERS:
        method, _, path = request.partition(" ")
        assert await app.call(method, path, body) == answer, request
        await app.call(method, path, body, expect=403, params={"directory": "/etc"})
    answer = await app.post("/global/upgrade", {"target": "1.2.3"})
    assert answer["success"] is False and "1.2.3" in answer["error"]
    name = (await app.post("/experimental/project/p/copy/generate-name", {"context": "mend the login"}))["name"]
    assert name.count("-") == 1 and name.islower()
    await app.post("/experimental/project/p/copy/refresh", expect=204)
    await app.post("/experimental/workspace/sync-list", expect=204)


async def test_a_session_is_in_no_workspace_in_no_background_and_stays_where_it_is(app: RunningApp) -> None:
    session = await app.create_session()
    assert await app.post(f"/experimental/session/{session['id']}/background") is False
    await app.post("/experimental/session/ses_unknown/background", expect=404)
    for workspace, status in (({"id": None}, 204), ({"id": "wrk_1"}, 404), ({}, 400)):
        await app.post(WARP, {"sessionID": session["id"], **workspace}, expect=status)
    move = {"sessionID": session["id"], "destination": {"directory": session["directory"]}}
    await app.post(MOVE, move, expect=204)
    away = await app.post(MOVE, {**move, "destination": {"directory": "/elsewhere"}}, expect=400)
    assert away["name"] == "MoveSessionError"
    assert (await app.get(f"/session/{session['id']}"))["directory"] == session["directory"]


async def test_others_sessions_are_not_there_for_a_member(anna: RunningApp, bert: RunningApp) -> None:
    session = await anna.create_session()
    for path, fields in ((WARP, {"id": None}), (MOVE, {"destination": {"directory": session["directory"]}})):
        await anna.post(path, {"sessionID": session["id"], **fields}, expect=204)
        hidden = await bert.post(path, {"sessionID": session["id"], **fields}, expect=404)
        unknown = await bert.post(path, {"sessionID": "ses_unknown", **fields}, expect=404)
        assert str(hidden).replace(session["id"], "ses_unknown") == str(unknown)


async def test_a_workspace_that_is_named_is_not_found(app: RunningApp) -> None:
    """None is named by an empty one, nor where there can be none."""
    session = await app.create_session()
    query = {"params": {"workspace": "wrk_1"}}
    for path in ("session", "vcs", "path", "config", "agent", "event", "project", f"session/{session['id']}"):
        error = await app.get(f"/{path}", expect=404, **query)
        assert error["name"] == "NotFoundError" and "wrk_1" in error["data"]["message"]
    await app.get("/session", params={"workspace": ""})
    for path in ("/global/health", "/global/config"):
        await app.get(path, **query)
    for named in (query, {"headers": {"x-opencode-workspace": "wrk_1"}}):
        await app.post("/session", {}, expect=404, **named)
    assert len(await app.get("/session")) == 1
