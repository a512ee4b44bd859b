"""What a directory is and has, and the server's own routes."""

import asyncio
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest
from alive import alive
from running_app import RunningApp, make_workspace, running_app
from user_logins import user


async def test_a_directory_has_its_paths_its_project_and_its_branch(app: RunningApp, plain_environment: Path) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    found = await app.get("/path", params={"directory": str(inside)})
    assert found["directory"] == str(inside) and found["worktree"] == str(app.directory)
    assert found["home"] == str(plain_environment)
    assert set(found) == {"home", "state", "config", "worktree", "directory"}
    root = subprocess.check_output(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=app.directory, text=True).strip()
    current = await app.get("/project/current")
    assert current["id"] == root and current["worktree"] == str(app.directory) and current["vcs"] == "git"
    assert [project["id"] for project in await app.get("/project")] == [root]
    assert (await app.call("PATCH", f"/project/{root}", {"name": "Mine"}))["name"] == "Mine"
    assert (await app.get("/project/current"))["name"] == "Mine"
    subprocess.run(["git", "checkout", "-qb", "topic/ü"], cwd=app.directory, check=True)
    assert (await app.get("/vcs"))["branch"] == "topic/ü"


async def test_outside_git_there_is_the_global_project(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    async with running_app(tmp_path, workspace=plain) as app:
        assert (await app.get("/project/current"))["id"] == "global"
        assert (await app.create_session())["projectID"] == "global"
        assert await app.get("/vcs") == {"branch": ""}


async def test_agents_and_commands_and_skills(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "workspace")
    agents, commands = workspace / ".opencode" / "agent", workspace / ".opencode" / "command"
    agents.mkdir(parents=True)
    commands.mkdir()
    (agents / "helper.md").write_text("---\ndescription: helps\nmode: subagent\n---\nYou help.")
    (commands / "greet.md").write_text("---\ndescription: greets\n---\nSay hello to $1.")
    greeting = workspace / ".opencode" / "skill" / "greeting" / "SKILL.md"
    greeting.parent.mkdir(parents=True)
    greeting.write_text("---\nname: greeting\ndescription: greets\n---\nSay hello.")
    async with running_app(tmp_path, workspace=workspace) as app:
        found = {agent["name"]: agent for agent in await app.get("/agent")}
        assert {"build", "plan", "general", "helper"} <= set(found)
        assert found["helper"]["mode"] == "subagent" and found["helper"]["prompt"] == "You help."
        listed = {command["name"]: command for command in await app.get("/command")}
        assert {"init", "greet"} <= set(listed) and listed["greet"]["description"] == "greets"
        assert (listed["greet"]["source"], listed["greet"]["template"]) == ("command", "Say hello to $1.")
        [skill] = await app.get("/skill")
        assert skill == {"name": "greeting", "description": "greets", "location": str(greeting), "content": "Say hello."}


async def test_tools_and_their_parameters_and_what_there_is_none_of(app: RunningApp) -> None:
    ids = await app.get("/experimental/tool/ids")
    assert {"bash", "read", "write", "edit", "task"} <= set(ids)
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
    assert first == second and await app.get("/doc") == first
    assert first["openapi"].startswith("3.") and "/session/{sessionID}/message" in first["paths"]


async def test_a_clients_log_entry_is_written_down(app: RunningApp, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "client"):
        entry = {"service": "tui", "level": "warn", "message": "two\nlines", "extra": {"k": "v"}}
        assert await app.post("/log", entry) is True
    [record] = [record for record in caplog.records if record.name == "client"]
    assert record.levelno == logging.WARNING and "\n" not in record.getMessage()


async def test_a_disposed_directory_forgets_nothing_that_is_stored(app: RunningApp) -> None:
    session = await app.create_session()
    await app.prompt(session["id"], "hi")
    assert await app.post("/instance/dispose") is True
    assert await app.get(f"/session/{session['id']}") is not None
    assert len((await app.prompt(session["id"], "again"))["parts"]) == 3
    assert await app.post("/global/dispose") is True
    assert len(await app.messages(session["id"])) == 4


# Directories.


async def test_a_directory_outside_the_roots_is_forbidden(app: RunningApp, tmp_path: Path) -> None:
    outside, link = tmp_path / "outside", app.directory / "link"
    outside.mkdir()
    link.symlink_to(outside)
    for route in ("/path", "/session", "/event", "/config", "/agent", "/permission", "/session/status"):
        for directory in map(str, ("/", outside, app.directory / ".." / "outside", f"{app.directory}x", link)):
            error = await app.get(route, params={"directory": directory}, expect=403)
            assert error["name"] == "DirectoryForbiddenError"
            await app.get(route, headers={"x-opencode-directory": directory}, expect=403)


async def test_more_roots_may_be_named(tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "other")
    async with running_app(tmp_path, roots=f"{other}:{tmp_path / 'third'}") as app:
        found = await app.get("/path", params={"directory": str(other)})
        assert found["directory"] == str(other)
        session = await app.post("/session", params={"directory": str(other)})
        assert session["directory"] == str(other)
        assert (await app.get(f"/session/{session['id']}"))["directory"] == str(other)
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)


@pytest.mark.parametrize("route", ["/path", "/session", "/event", "/config", "/api/location"])
@pytest.mark.parametrize("beside", ["", "sibling"])
async def test_the_first_request_may_be_for_a_directory_beside_the_servers_own(tmp_path: Path, route: str, beside: str) -> None:
    """The worktree around the server's directory is a root."""
    top = make_workspace(tmp_path / "top")
    for name in ("inside", "sibling"):
        (top / name).mkdir()
    async with running_app(tmp_path, workspace=top / "inside") as app:
        query = {"location[directory]": str(top / beside)} if route.startswith("/api") else {"directory": str(top / beside)}
        async with app.client.stream("GET", route, params=query) as answer:
            assert answer.status_code == 200
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)
        async with user(app, "root", "admin") as root:
            assert (await root.get("/path", params={"directory": str(top / "sibling")}))["worktree"] == str(top)


async def test_reopening_the_servers_own_directory_adds_no_root_again(app: RunningApp) -> None:
    roots = app.services.instances.workspaces.roots
    await app.get("/path")
    before = list(roots)
    for _ in range(3):
        await app.post("/instance/dispose")
        await app.get("/path")
    assert roots == before and len(set(before)) == len(before)


async def test_a_directory_that_is_out_of_use_leaves_no_lock(app: RunningApp) -> None:
    before = alive(asyncio.Lock)
    for number in range(20):
        directory = app.directory / f"d{number}"
        directory.mkdir()
        await app.get("/agent", params={"directory": str(directory)})
        await app.post("/instance/dispose", params={"directory": str(directory)})
    assert alive(asyncio.Lock) < before + 20


async def test_a_prompt_is_answered_in_its_sessions_directory(app: RunningApp) -> None:
    inside = app.directory / "inside"
    inside.mkdir()
    session = await app.post("/session", params={"directory": str(inside)})
    answer = await app.prompt(session["id"], "hi")
    assert answer["info"]["path"] == {"cwd": str(inside), "root": str(app.directory)}
    assert any(str(inside) in block for request in app.provider.requests for block in request.system)


# Choosing a directory, from the top down.


async def listed(app: RunningApp, directory: Path | str, expect: int = 200) -> Any:
    return await app.get("/file", params={"directory": str(directory), "path": ""}, expect=expect)


async def found(app: RunningApp, directory: Path | str, query: str = "") -> Any:
    return await app.get("/find/file", params={"directory": str(directory), "query": query, "type": "directory"})


async def test_above_the_roots_only_what_leads_down_to_them_is_listed(tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "code" / "other")
    (tmp_path / "code" / "hidden").mkdir()
    async with running_app(tmp_path, roots=str(other)) as app:
        assert [(folder["name"], folder["absolute"], folder["type"]) for folder in await listed(app, tmp_path)] == [
            ("code", f"{tmp_path}/code", "directory"),
            (app.directory.name, str(app.directory), "directory"),
        ]
        assert [folder["name"] for folder in await listed(app, tmp_path / "code")] == ["other"]
        assert [folder["name"] for folder in await listed(app, "/")] == [tmp_path.parts[1]]
        assert "a.txt" in [file["name"] for file in await listed(app, other)]
        assert await found(app, tmp_path) == ["code/", "code/other/", f"{app.directory.name}/"]
        assert await found(app, tmp_path, "oth") == ["code/other/"]
        await listed(app, tmp_path / "code" / "hidden", expect=403)
        await app.get("/path", params={"directory": str(tmp_path)}, expect=403)


async def test_a_member_is_shown_the_way_to_their_own_roots_alone(tmp_path: Path) -> None:
    own = make_workspace(tmp_path / "people" / "anna")
    make_workspace(tmp_path / "people" / "bert")
    async with running_app(tmp_path) as app, user(app, "anna", roots=[own]) as anna:
        assert [folder["name"] for folder in await listed(anna, tmp_path)] == ["people"]
        assert [folder["name"] for folder in await listed(anna, tmp_path / "people")] == ["anna"]
        await listed(anna, app.directory, expect=403)
