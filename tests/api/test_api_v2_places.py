"""The second API: how a request names its directory, and the form of what is refused."""

from pathlib import Path
from urllib.parse import quote

import pytest
from route_roles import api_routes, operation_of
from running_app import RunningApp, make_workspace, running_app

PASSWORD = "a long password"
OPENCODES = """
v2.agent.list v2.command.list v2.credential.remove v2.credential.update v2.event.subscribe v2.fs.find v2.fs.list
v2.fs.read v2.health.get v2.integration.attempt.cancel v2.integration.attempt.complete v2.integration.attempt.status
v2.integration.connect.key v2.integration.connect.oauth v2.integration.get v2.integration.list v2.location.get
v2.model.list v2.permission.request.list v2.permission.saved.list v2.permission.saved.remove v2.provider.get
v2.provider.list v2.pty.connect v2.pty.connectToken v2.pty.create v2.pty.get v2.pty.list v2.pty.remove v2.pty.update
v2.question.request.list v2.reference.list v2.session.active v2.session.compact v2.session.context v2.session.create
v2.session.events v2.session.get v2.session.history v2.session.interrupt v2.session.list v2.session.message
v2.session.messages v2.session.permission.create v2.session.permission.get v2.session.permission.list
v2.session.permission.reply v2.session.prompt v2.session.question.list v2.session.question.reject
v2.session.question.reply v2.session.revert.clear v2.session.revert.commit v2.session.revert.stage
v2.session.switchAgent v2.session.switchModel v2.session.wait v2.skill.list
"""
"""The operations of `/api/` in the description of 1.18.33."""


def directory_of(place: str) -> dict[str, str]:
    return {"location[directory]": place}


async def test_a_request_that_names_none_is_of_the_servers_own_directory(app: RunningApp) -> None:
    project = await app.get("/project/current")
    expected = {"directory": str(app.directory), "project": {"id": project["id"], "directory": project["worktree"]}}
    assert await app.get("/api/location") == expected


async def test_the_query_names_a_directory_else_the_header(tmp_path: Path) -> None:
    below = make_workspace(tmp_path / "workspace") / "below é"
    below.mkdir()
    async with running_app(tmp_path, workspace=tmp_path / "workspace") as app:
        header = {"x-opencode-directory": quote(str(below))}
        asked = [
            await app.get("/api/location", params=directory_of(str(below))),
            await app.get("/api/location", headers=header),
            await app.get("/api/location", headers={"x-opencode-directory": "/"}, params=directory_of(str(below))),
        ]
        assert [place["directory"] for place in asked] == [str(below)] * 3
        assert {place["project"]["directory"] for place in asked} == {str(app.directory)}


async def test_what_is_refused_before_any_route_is_told_in_its_form(app: RunningApp) -> None:
    workspace = await app.get("/api/location", headers={"x-opencode-workspace": "wrk_1"}, expect=400)
    assert workspace["field"] == "location.workspace"
    outside = await app.get("/api/location", params=directory_of("/"), expect=403)
    assert outside == {"_tag": "ForbiddenError", "message": outside["message"]}
    assert "OPENSESSION_ROOTS" in outside["message"]
    assert (await app.get("/api/location", headers={"host": "evil.example"}, expect=403))["_tag"] == "HostForbiddenError"
    assert (await app.get("/path", headers={"host": "evil.example"}, expect=403))["name"] == "HostForbiddenError"


async def test_without_the_login_it_says_so_in_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", PASSWORD)
    async with running_app(tmp_path, auth=("opencode", PASSWORD)) as app:
        response = await app.client.get("/api/location", auth=None)
        refusal = response.json()
        assert (response.status_code, refusal["_tag"]) == (401, "UnauthorizedError")
        assert "Basic" in response.headers["www-authenticate"]
        assert (await app.client.get("/api/location")).status_code == 200


async def test_it_has_every_route_that_opencodes_has(app: RunningApp) -> None:
    """All or none: a client that finds its health uses the rest."""
    assert await app.get("/api/health") == {"healthy": True}
    described = {operation_of(route) for route in api_routes(app.fastapi)}
    assert set(OPENCODES.split()) - described == set()
