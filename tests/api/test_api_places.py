"""What a directory is and has, which directories may be named, and the server's own routes."""

import asyncio
import gc
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from alive import alive
from obstacles import unresolved
from running_app import RunningApp, make_workspace, running_app
from user_logins import user

from app.workspace import workspaces


async def test_a_directory_has_its_paths_its_project_and_its_branch(app: RunningApp, plain_environment: Path) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    found = await app.get("/path", params={"directory": str(inside)})
    expected = {"directory": str(inside), "worktree": str(app.directory), "home": str(plain_environment)}
    assert found.items() >= expected.items() and found.keys() - expected.keys() == {"state", "config"}
    root = subprocess.check_output(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=app.directory, text=True).strip()
    current = await app.get("/project/current")
    assert (current["id"], current["worktree"], current["vcs"]) == (root, str(app.directory), "git")
    assert [project["id"] for project in await app.get("/project")] == [root]
    assert (await app.call("PATCH", f"/project/{root}", {"name": "Mine"}))["name"] == "Mine"
    assert (await app.get("/project/current"))["name"] == "Mine"
    subprocess.run(["git", "checkout", "-qb", "topic/ü"], cwd=app.directory, check=True)
    assert (await app.get("/vcs"))["branch"] == "topic/ü"
    session = await app.post("/session", params={"directory": str(inside)})
    answer = await app.prompt(session["id"], "hi")
    assert answer["info"]["path"] == {"cwd": str(inside), "root": str(app.directory)}
    assert any(str(inside) in block for request in app.provider.requests for block in request.system)


async def test_a_change_of_a_project_leaves_what_it_does_not_name_and_an_empty_text_removes(app: RunningApp) -> None:
    path = f"/project/{(await app.get('/project/current'))['id']}"
    for change in ({"icon": {"color": "red", "url": "data:,"}}, {"icon": {"override": "x"}}, {"commands": {"start": "make"}}):
        changed = await app.call("PATCH", path, change)
    assert (changed["icon"], changed["commands"]) == ({"color": "red", "url": "data:,", "override": "x"}, {"start": "make"})
    for change in ({"icon": {"override": ""}}, {"commands": {"start": ""}}):
        changed = await app.call("PATCH", path, change)
    assert changed["icon"] == {"color": "red", "url": "data:,"} and "commands" not in changed


async def test_so_many_directories_stay_open_and_a_closed_one_is_opened_again(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "MAX_OPEN", 3)
    first, *others = [app.directory / f"d{number}" for number in range(10)]
    for each in (first, *others):
        each.mkdir()
    session = await app.post("/session", params={"directory": str(first)})
    descriptors = []
    for each in others:
        await app.get("/agent", params={"directory": str(each)})
        gc.collect()
        descriptors.append(len(os.listdir("/dev/fd")))
    assert max(descriptors[3:]) <= descriptors[3] + 2, descriptors
    assert len(app.services.workspaces.open_directories()) == len(app.services.instances.mcp_servers()) == 3
    assert (await app.prompt(session["id"], "hi"))["info"]["path"]["cwd"] == str(first)


async def test_a_session_whose_directory_is_gone_is_renamed_unshared_and_deleted(app: RunningApp) -> None:
    """Nothing begins in it; and what a request names instead must be there."""
    directory = make_workspace(app.directory / "gone")
    session = (await app.post("/session", params={"directory": str(directory)}))["id"]
    link = (await app.post(f"/session/{session}/share"))["share"]["url"].rpartition("/")[2]
    prompt = (await app.prompt(session, "hi"))["info"]["parentID"]
    shutil.rmtree(directory)
    for path in ("message", "fork", "share", "shell"):
        body = {"parts": [], "agent": "build", "command": "true"}
        assert "gone" in (await app.post(f"/session/{session}/{path}", body, expect=400))["data"]["message"]
    await app.call("DELETE", f"/session/{session}", params={"directory": str(app.directory / "neither")}, expect=400)
    assert (await app.call("PATCH", f"/session/{session}", {"title": "Old"}))["title"] == "Old"
    assert await app.call("DELETE", f"/session/{session}/message/{prompt}") is True
    assert "share" not in await app.call("DELETE", f"/session/{session}/share", params={"directory": str(directory)})
    await app.get(f"/s/{link}/session", expect=404)
    async with app.events("/global/event") as events:
        assert await app.call("DELETE", f"/session/{session}") is True
        await events.until("session.deleted")
    await app.get(f"/session/{session}", expect=404)


async def test_tools_and_their_parameters_and_what_there_is_none_of(app: RunningApp) -> None:
    assert {"bash", "read", "write", "edit", "task"} <= set(await app.get("/experimental/tool/ids"))
    tools = await app.get("/experimental/tool", params={"provider": "scripted", "model": "rules"})
    assert all(set(tool) == {"id", "description", "parameters"} and tool["description"] for tool in tools)
    for path in ("/lsp", "/permission", "/question", "/session"):
        assert await app.get(path) == []
    for path in ("/mcp", "/experimental/resource", "/session/status"):
        assert await app.get(path) == {}


async def test_others_are_answered_while_the_description_is_made(app: RunningApp) -> None:
    """It takes more than a second of work, once."""
    await app.get("/global/health")
    describing = [asyncio.create_task(app.get("/doc")) for _ in range(2)]
    for _ in range(20):
        await app.get("/global/health")
    assert not any(task.done() for task in describing)
    first, second = await asyncio.gather(*describing)
    assert first == second == await app.get("/doc")
    assert first["openapi"].startswith("3.") and "/session/{sessionID}/message" in first["paths"]


async def test_a_clients_log_entry_is_written_down(app: RunningApp, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "client"):
        for message, level in (("line\r\nINFO forged entry", "warn"), ("x" * 100_000, "debug")):
            assert await app.post("/log", {"service": "tui", "level": level, "message": message, "extra": {"a": 1}}) is True
    first, second = [record for record in caplog.records if record.name == "client"]
    assert first.levelno == logging.WARNING and "\n" not in first.getMessage() and "\r" not in first.getMessage()
    assert "'a': 1" in first.getMessage() and len(second.getMessage()) <= 4000


async def test_a_disposed_directory_forgets_nothing_that_is_stored_and_leaves_no_lock_and_no_root(app: RunningApp) -> None:
    session, roots = await app.create_session(), app.services.instances.workspaces.roots
    await app.prompt(session["id"], "hi")
    before = list(roots)
    for _ in range(3):
        assert await app.post("/instance/dispose") is True
        assert await app.get(f"/session/{session['id']}") is not None
        await app.get("/path")
    assert roots == before and len(set(before)) == len(before)
    assert len((await app.prompt(session["id"], "again"))["parts"]) == 3
    assert await app.post("/global/dispose") is True
    assert len(await app.messages(session["id"])) == 4
    locks = alive(asyncio.Lock)
    for number in range(20):
        directory = app.directory / f"d{number}"
        directory.mkdir()
        await app.get("/agent", params={"directory": str(directory)})
        await app.post("/instance/dispose", params={"directory": str(directory)})
    assert alive(asyncio.Lock) < locks + 20


# Which may be named.


async def test_a_directory_outside_the_roots_is_forbidden(app: RunningApp, tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", app.directory / "link"
    outside.mkdir()
    link.symlink_to(outside)
    for route in ("/path", "/session", "/event", "/config", "/agent", "/permission", "/session/status"):
        for directory in map(str, ("/", outside, app.directory / ".." / "outside", f"{app.directory}x", link)):
            for named in ({"params": {"directory": directory}}, {"headers": {"x-opencode-directory": directory}}):
                assert (await app.get(route, expect=403, **named))["name"] == "DirectoryForbiddenError"


async def test_a_directory_whose_place_cannot_be_read_is_forbidden(app: RunningApp) -> None:
    with unresolved() as place:
        link = app.directory / "link"
        link.symlink_to(place)
        for directory in map(str, (place, link, link / "inside")):
            for route in ("/path", "/session", "/config", "/file?path="):
                named = {"params": {"directory": directory, "path": ""}}
                assert (await app.get(route, expect=403, **named))["name"] == "DirectoryForbiddenError"
            assert await app.get("/experimental/session", params={"directory": directory}) == []


async def test_more_roots_may_be_named(tmp_path: Path) -> None:
    other = {"directory": str(make_workspace(tmp_path / "other"))}
    async with running_app(tmp_path, roots=f"{other['directory']}:{tmp_path / 'third'}") as app:
        session = await app.post("/session", params=other)
        for found in (session, await app.get(f"/session/{session['id']}"), await app.get("/path", params=other)):
            assert found["directory"] == other["directory"]
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)


@pytest.mark.parametrize("route", ["/path", "/session", "/event", "/config", "/api/location"])
@pytest.mark.parametrize("beside", ["", "sibling"])
async def test_the_first_request_may_be_for_a_directory_beside_the_servers_own(tmp_path: Path, route: str, beside: str) -> None:
    """The worktree around the server's directory is a root."""
    top = make_workspace(tmp_path / "top")
    for name in ("inside", "sibling"):
        (top / name).mkdir()
    async with running_app(tmp_path, workspace=top / "inside") as app:
        name = "location[directory]" if route.startswith("/api") else "directory"
        async with app.client.stream("GET", route, params={name: str(top / beside)}) as answer:
            assert answer.status_code == 200
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)
        async with user(app, "root", "admin") as root:
            assert (await root.get("/path", params={"directory": str(top / "sibling")}))["worktree"] == str(top)


# Choosing one, from the top down.


async def folders(app: RunningApp, directory: Path | str, expect: int = 200) -> Any:
    found = await app.get("/file", params={"directory": str(directory), "path": ""}, expect=expect)
    return [(folder["name"], folder["absolute"]) for folder in found] if expect == 200 else None


async def test_above_the_roots_only_what_leads_down_to_them_is_listed(tmp_path: Path) -> None:
    other, own = make_workspace(tmp_path / "code" / "other"), make_workspace(tmp_path / "people" / "anna")
    for name in ("code/hidden", "people/bert"):
        (tmp_path / name).mkdir()
    async with running_app(tmp_path, roots=str(other)) as app:
        at_top = [("code", f"{tmp_path}/code"), (app.directory.name, str(app.directory))]
        assert await folders(app, tmp_path) == at_top
        assert await folders(app, tmp_path / "code") == [("other", str(other))]
        assert await folders(app, "/") == [(tmp_path.parts[1], f"/{tmp_path.parts[1]}")]
        assert ("a.txt", f"{other}/a.txt") in await folders(app, other)
        for query, found in {"": ["code/", "code/other/", f"{app.directory.name}/"], "oth": ["code/other/"]}.items():
            wanted = {"directory": str(tmp_path), "query": query, "type": "directory"}
            assert await app.get("/find/file", params=wanted) == found
        await folders(app, tmp_path / "code" / "hidden", expect=403)
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)
        async with user(app, "anna", roots=[own]) as anna:
            assert await folders(anna, tmp_path) == [("people", f"{tmp_path}/people")]
            assert await folders(anna, tmp_path / "people") == [("anna", str(own))]
            await folders(anna, app.directory, expect=403)
