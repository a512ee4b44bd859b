"""A project's directories, and making a directory a repository."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from running_app import RunningApp, make_workspace, running_app
from turns import until
from user_logins import user

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path.resolve(), roots=str(tmp_path.resolve())) as running:
        yield running


def plain(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "plain"
    directory.mkdir()
    return directory


async def test_a_projects_directories_are_its_checkouts(app: RunningApp, tmp_path: Path) -> None:
    other = tmp_path.resolve() / "other"
    subprocess.run(["git", "worktree", "add", "-q", str(other)], cwd=app.directory, check=True)
    project = await app.get("/project/current")
    await app.get("/path", params={"directory": str(other)})
    found = await app.get(f"/project/{project['id']}/directories")
    assert found == [{"directory": str(app.directory)}, {"directory": str(other)}]
    await app.get("/path", params={"directory": str(plain(tmp_path))})
    for none in ("unknown", "global"):
        assert await app.get(f"/project/{none}/directories") == []


async def test_a_member_is_told_of_those_in_their_roots(tmp_path: Path) -> None:
    main, other = make_workspace(tmp_path.resolve() / "main"), tmp_path.resolve() / "other"
    subprocess.run(["git", "worktree", "add", "-q", str(other)], cwd=main, check=True)
    async with running_app(tmp_path) as app, user(app, "anna", roots=[other]) as anna, user(app, "bert", roots=[main]) as bert:
        await bert.get("/path")
        project = await anna.get("/project/current")
        path = f"/project/{project['id']}/directories"
        assert await anna.get(path) == [{"directory": str(other)}]
        assert await bert.get(path) == [{"directory": str(main)}]


class TestInit:
    async def test_a_directory_becomes_a_repository_at_once(self, app: RunningApp, tmp_path: Path) -> None:
        directory = plain(tmp_path)
        query = {"directory": str(directory)}
        assert (await app.get("/path", params=query))["worktree"] == "/"
        project = await app.post("/project/git/init", params=query)
        assert (project["vcs"], project["worktree"]) == ("git", str(directory))
        assert (await app.get("/path", params=query))["worktree"] == str(directory)
        assert sorted(path.name for path in (directory / ".git").iterdir() if path.name == "hooks") == []

    async def test_one_that_is_a_repository_stays_as_it_is(self, app: RunningApp) -> None:
        before = await app.get("/project/current")
        (app.directory / "below").mkdir()
        for directory in (app.directory, app.directory / "below"):
            after = await app.post("/project/git/init", params={"directory": str(directory)})
            assert (after["id"], after["worktree"]) == (before["id"], before["worktree"])
        assert not (app.directory / "below/.git").exists()

    async def test_it_is_refused_while_a_session_works_there(self, tmp_path: Path) -> None:
        directory = plain(tmp_path)
        wait = [{"tool": "bash", "args": {"command": "touch begun; until test -e go; do sleep 0.02; done", "description": "d"}}]
        async with running_app(tmp_path, workspace=directory, turns=[wait, [{"text": "Done."}]]) as app:
            session = await app.create_session(permission=ALLOW)
            async with app.events() as events:
                await app.prompt_async(session["id"], "Go")
                await until(lambda: (directory / "begun").exists())
                error = await app.post("/project/git/init", expect=409)
                assert error["name"] == "DirectoryBusyError" and not (directory / ".git").exists()
                (directory / "go").touch()
                await events.until("session.idle")
            await app.post("/project/git/init")

    async def test_members_do_so_in_their_roots(self, app: RunningApp, tmp_path: Path) -> None:
        own = plain(tmp_path)
        async with user(app, "anna", roots=[own]) as anna, user(app, "vera", "viewer") as viewer:
            await viewer.post("/project/git/init", expect=403)
            await anna.post("/project/git/init", expect=403, params={"directory": str(app.directory)})
            assert (await anna.post("/project/git/init"))["vcs"] == "git"
