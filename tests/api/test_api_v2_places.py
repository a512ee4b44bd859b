"""The second API: how a request names its directory, and the form of what is refused."""

from pathlib import Path
from urllib.parse import quote

import pytest
from running_app import RunningApp, make_workspace, running_app

PASSWORD = "a long password"


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


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (directory_of("below"), "directory"),
        (directory_of("/a\0b"), "directory"),
        ({"location[workspace]": "wrk_1"}, "location.workspace"),
        ({"location": '{"directory": "/"}'}, "location"),
    ],
)
async def test_a_place_that_is_none_is_refused_by_its_field(app: RunningApp, query: dict[str, str], field: str) -> None:
    refusal = await app.get("/api/location", params=query, expect=400)
    assert refusal["_tag"] == "InvalidRequestError"
    assert (refusal["field"], bool(refusal["message"])) == (field, True)


async def test_a_workspace_in_the_header_is_refused_too(app: RunningApp) -> None:
    refusal = await app.get("/api/location", headers={"x-opencode-workspace": "wrk_1"}, expect=400)
    assert refusal["field"] == "location.workspace"


async def test_a_directory_outside_the_roots_is_forbidden(app: RunningApp) -> None:
    refusal = await app.get("/api/location", params=directory_of("/"), expect=403)
    assert refusal == {"_tag": "ForbiddenError", "message": refusal["message"]}
    assert "OPENSESSION_ROOTS" in refusal["message"]


async def test_without_the_login_it_says_so_in_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", PASSWORD)
    async with running_app(tmp_path, auth=("opencode", PASSWORD)) as app:
        response = await app.client.get("/api/location", auth=None)
        refusal = response.json()
        assert (response.status_code, refusal["_tag"]) == (401, "UnauthorizedError")
        assert "Basic" in response.headers["www-authenticate"]
        assert (await app.client.get("/api/location")).status_code == 200


async def test_a_host_that_is_not_known_is_refused_in_its_form(app: RunningApp) -> None:
    assert (await app.get("/api/location", headers={"host": "evil.example"}, expect=403))["_tag"] == "HostForbiddenError"
    assert (await app.get("/path", headers={"host": "evil.example"}, expect=403))["name"] == "HostForbiddenError"
