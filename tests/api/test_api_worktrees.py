"""Worktrees that the server makes of a repository: `/experimental/worktree`."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from refused_commits import refused_commits
from running_app import RunningApp, make_workspace, running_app
from sandboxed import needs_sandbox
from turns import until
from user_logins import user

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]
ROUTE = "/experimental/worktree"


def git(directory: Path | str, *args: str) -> str:
    author = ["-c", "user.email=a@b", "-c", "user.name=a"]
    return subprocess.run(["git", *author, *args], cwd=directory, check=True, capture_output=True, text=True).stdout


def bash(command: str) -> list[dict[str, Any]]:
    return [{"tool": "bash", "args": {"command": command, "description": "d"}}]


async def created(app: RunningApp, **wanted: str) -> dict[str, str]:
    """With its files."""
    async with app.events("/global/event") as events:
        worktree: dict[str, str] = await app.post(ROUTE, wanted)
        ready = await events.until("worktree.ready")
    assert ready.data["directory"] == worktree["directory"]
    assert ready.properties == {"name": worktree["name"], "branch": worktree["branch"]}
    return worktree


async def remove(app: RunningApp, directory: object, /, *, expect: int = 200, **query: Any) -> Any:
    return await app.call("DELETE", ROUTE, {"directory": str(directory)}, expect=expect, params=query)


async def reset(app: RunningApp, directory: object, /, *, expect: int = 200, **query: Any) -> Any:
    return await app.post(f"{ROUTE}/reset", {"directory": str(directory)}, expect=expect, params=query)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path.resolve()) as running:
        git(running.directory, "branch", "-M", "main")
        yield running


class TestCreate:
    async def test_it_has_the_files_of_head_on_a_branch_of_its_own(self, app: RunningApp) -> None:
        (app.directory / "a.txt").write_text("changed since\n")
        worktree = await created(app, name="My Feature / ../x!")
        assert (worktree["name"], worktree["branch"]) == ("my-feature-x", "opencode/my-feature-x")
        directory = Path(worktree["directory"])
        assert directory.is_relative_to(app.data_dir.resolve()) and (directory / "a.txt").read_text() == "hello\nworld\n"
        assert git(directory, "status", "--porcelain", "--branch") == "## opencode/my-feature-x\n"
        assert sorted(path.name for path in directory.iterdir()) == [".git", "a.txt"], "no command ran"
        assert await app.get(ROUTE) == [str(directory)]
        project = await app.get("/project/current")
        assert project["sandboxes"] == [str(directory)]
        found = await app.get(f"/project/{project['id']}/directories")
        assert found == [{"directory": str(app.directory)}, {"directory": str(directory)}]

    async def test_names_are_made_where_none_or_a_taken_one_is_given(self, app: RunningApp) -> None:
        git(app.directory, "branch", "opencode/taken")
        first, second = await created(app), await created(app, name="/")
        assert first["name"] != second["name"] and first["name"].count("-") == 1
        again = await created(app, name="taken")
        assert again["name"].startswith("taken-") and again["branch"] == f"opencode/{again['name']}"
        assert len((await created(app, name="x" * 500))["name"]) == 64
        assert len(await app.get(ROUTE)) == 4
        found = await asyncio.gather(*(app.post(ROUTE, {"name": "same"}) for _ in range(3)))
        assert len({worktree["directory"] for worktree in found}) == 3, "at one moment, too"

    async def test_it_is_refused_without_a_repository_or_a_commit(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.mkdir()
        async with running_app(tmp_path, workspace=plain) as app:
            assert (await app.post(ROUTE, {}, expect=400))["name"] == "WorktreeNotGitError"
            assert await app.get(ROUTE) == []
            for verb in (remove, reset):
                await verb(app, plain, expect=400)
            await app.post("/project/git/init")
            assert (await app.post(ROUTE, {}, expect=400))["name"] == "WorktreeCreateFailedError"
            assert await app.get(ROUTE) == []

    async def test_files_that_cannot_be_checked_out_are_told_of(self, app: RunningApp) -> None:
        blob = git(app.directory, "rev-parse", "HEAD:a.txt").strip()
        (app.directory / ".git/objects" / blob[:2] / blob[2:]).unlink()
        async with app.events("/global/event") as events:
            worktree = await app.post(ROUTE, {"name": "x"})
            failed = await events.until("worktree.failed")
        assert failed.data["directory"] == worktree["directory"] and failed.properties["message"]
        assert await remove(app, worktree["directory"]) is True

    async def test_a_repositorys_configuration_runs_nothing(self, app: RunningApp, tmp_path: Path) -> None:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\ncat\n")
        program.chmod(0o755)
        hooks = app.directory / ".git/hooks"
        hooks.mkdir()
        for hook in ("post-checkout", "reference-transaction", "post-index-change"):
            (hooks / hook).symlink_to(program)
        for name in ("filter.x.smudge", "filter.x.clean", "filter.x.process", "core.fsmonitor"):
            git(app.directory, "config", name, str(program))
        (app.directory / ".git/info").mkdir()
        (app.directory / ".git/info/attributes").write_text("* filter=x\n")
        worktree = await created(app)
        await reset(app, worktree["directory"])
        await remove(app, worktree["directory"])
        assert not (tmp_path / "ran").exists()


class TestStartCommands:
    async def test_the_projects_own_runs_then_the_requests(self, app: RunningApp) -> None:
        project = await app.get("/project/current")
        await app.call("PATCH", f"/project/{project['id']}", {"commands": {"start": "cat a.txt > own; false"}})
        directory = Path((await created(app, startCommand="cp own given"))["directory"])
        await until(lambda: (directory / "given").exists() and (directory / "given").read_text() == "hello\nworld\n")
        assert not (app.directory / "own").exists()
        (directory / "given").unlink()
        await reset(app, directory)
        await until(lambda: (directory / "own").exists())
        assert not (directory / "given").exists()

    @needs_sandbox
    async def test_they_run_in_the_sandbox(self, app: RunningApp, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("s")
        command = f"cat {tmp_path}/secret {app.data_dir}/opensession.db > stolen; git log -1 > log; touch ended"
        directory = Path((await created(app, startCommand=command))["directory"])
        await until(lambda: (directory / "ended").exists())
        assert (directory / "stolen").read_text() == "" and "first" in (directory / "log").read_text()

    async def test_what_still_runs_ends_with_the_worktree(self, app: RunningApp) -> None:
        seconds = f"600.{os.getpid()}"
        directory = Path((await created(app, startCommand=f"touch begun; exec sleep {seconds}"))["directory"])
        await until(lambda: (directory / "begun").exists() and runs(seconds))
        await remove(app, directory)
        await until(lambda: not runs(seconds))
        assert not directory.exists()


def runs(word: str) -> bool:
    return any(word in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


class TestReset:
    async def test_it_is_the_default_branch_again_and_nothing_besides(self, app: RunningApp) -> None:
        directory = Path((await created(app))["directory"])
        (directory / ".gitignore").write_text("ignored\n")
        git(directory, "add", "-A")
        git(directory, "commit", "-qm", "mine")
        for name in ("ignored", "untracked", "a.txt"):
            (directory / name).write_text("mine\n")
        make_workspace(directory / "nested")
        (app.directory / "b.txt").write_text("of main\n")
        git(app.directory, "add", "-A")
        git(app.directory, "commit", "-qm", "more")
        assert await reset(app, directory) is True
        assert sorted(path.name for path in directory.iterdir()) == [".git", "a.txt", "b.txt"]
        assert git(directory, "status", "--porcelain", "--branch") == "## opencode/" + directory.name + "\n"

    async def test_there_must_be_a_default_branch(self, app: RunningApp) -> None:
        directory = (await created(app))["directory"]
        git(app.directory, "branch", "-M", "other")
        error = await reset(app, directory, expect=400)
        assert error["name"] == "WorktreeResetFailedError" and "default branch" in error["data"]["message"]


class TestRemove:
    async def test_it_goes_with_its_branch(self, app: RunningApp) -> None:
        directory = Path((await created(app))["directory"])
        (directory / "untracked").write_text("x")
        assert await remove(app, directory) is True
        assert not directory.exists() and await app.get(ROUTE) == []
        assert git(app.directory, "branch", "--format=%(refname:short)") == "main\n"
        assert (await app.get("/project/current"))["sandboxes"] == []
        await app.get("/path", params={"directory": str(directory)}, expect=403)
        assert await remove(app, directory) is True, "a second time too"

    async def test_also_asked_for_in_itself_or_when_its_files_are_gone(self, app: RunningApp) -> None:
        first, second = [Path((await created(app))["directory"]) for _ in range(2)]
        await remove(app, first, directory=str(first))
        shutil.rmtree(second)
        assert await app.get(ROUTE) == []
        await remove(app, second)
        assert git(app.directory, "worktree", "list").count("\n") == 1
        assert git(app.directory, "branch", "--format=%(refname:short)") == "main\n"

    async def test_one_that_is_locked_or_that_the_database_refuses_to_forget_stays(self, app: RunningApp) -> None:
        directory = (await created(app))["directory"]
        git(app.directory, "worktree", "lock", directory)
        error = await remove(app, directory, expect=400)
        assert error["name"] == "WorktreeRemoveFailedError" and "locked" in error["data"]["message"]
        assert (await app.get("/path", params={"directory": directory}))["worktree"] == directory
        git(app.directory, "worktree", "unlock", directory)
        with refused_commits() as commits:
            commits.refuses = True
            await remove(app, directory, expect=503)
            assert (Path(directory) / "a.txt").exists()
        assert await remove(app, directory) is True and not Path(directory).exists()

    async def test_nothing_begins_in_one_that_is_being_removed(self, app: RunningApp) -> None:
        directory = (await created(app))["directory"]
        session = await app.post("/session", {}, params={"directory": directory})
        project = (await app.get("/project/current"))["id"]
        async with app.services.worktrees.locks.lock(f"worktrees {project}"):
            async with app.events("/global/event") as events:
                removal = asyncio.create_task(remove(app, directory))
                await events.until("server.instance.disposed")
            assert (await app.prompt(session["id"], "Go", expect=403))["name"] == "DirectoryForbiddenError"
            assert Path(directory).exists()
        assert await removal is True and not Path(directory).exists()

    async def test_what_this_server_did_not_make_is_left_alone(self, app: RunningApp, tmp_path: Path) -> None:
        own = Path((await created(app, name="own"))["directory"])
        by_hand, clone = tmp_path.resolve() / "by-hand", tmp_path.resolve() / "clone"
        git(app.directory, "worktree", "add", "-q", str(by_hand))
        git(tmp_path, "clone", "-q", str(app.directory), str(clone))
        foreign = own.parent / "foreign"
        git(clone, "worktree", "add", "-q", str(foreign))
        escapes = (own / "..", own / "../../..", own.parent, own / "a.txt", app.data_dir, tmp_path, "/", "", "own", f"{own}/.git")
        for directory in (app.directory, by_hand, clone, foreign, *escapes):
            assert (await remove(app, directory, expect=400))["name"] == "WorktreeRemoveFailedError", directory
            assert (await reset(app, directory, expect=400))["name"] == "WorktreeResetFailedError", directory
        for directory in (app.directory, by_hand, clone, foreign, own):
            assert (directory / "a.txt").exists()


class TestSessions:
    async def test_a_turn_works_in_it_with_snapshots_and_a_revert(self, tmp_path: Path) -> None:
        turns = [bash("echo changed > a.txt; echo new > b.txt; pwd"), [{"text": "Done."}]]
        async with running_app(tmp_path, turns=turns) as app:
            directory = Path((await created(app))["directory"])
            query = {"directory": str(directory)}
            session = await app.post("/session", {"permission": ALLOW}, params=query)
            assert (session["directory"], session["projectID"]) == (str(directory), (await app.get("/project/current"))["id"])
            answer = await app.prompt(session["id"], "Go")
            messages = await app.messages(session["id"])
            outputs = [part["state"]["output"] for message in messages for part in message["parts"] if part["type"] == "tool"]
            assert str(directory) in outputs[0]
            patch = next(part for message in messages for part in message["parts"] if part["type"] == "patch")
            assert sorted(patch["files"]) == [str(directory / "a.txt"), str(directory / "b.txt")]
            assert len(await app.get("/vcs/status", params=query)) == 2 and await app.get("/vcs/status") == []
            await app.post(f"/session/{session['id']}/revert", {"messageID": messages[0]["info"]["id"]})
            assert (directory / "a.txt").read_text() == "hello\nworld\n" and not (directory / "b.txt").exists()
            assert answer["info"]["path"]["root"] == str(directory)

    async def test_it_is_neither_removed_nor_reset_while_a_turn_works_in_it(self, tmp_path: Path) -> None:
        wait = bash("touch begun; until test -e go; do sleep 0.02; done")
        async with running_app(tmp_path, turns=[wait, [{"text": "Done."}]]) as app:
            git(app.directory, "branch", "-M", "main")
            directory, other = [Path((await created(app))["directory"]) for _ in range(2)]
            (directory / "below").mkdir()
            session = await app.post("/session", {"permission": ALLOW}, params={"directory": str(directory / "below")})
            async with app.events("/global/event") as events:
                await app.prompt_async(session["id"], "Go")
                await until(lambda: (directory / "below/begun").exists())
                for verb in (remove, reset):
                    assert (await verb(app, directory, expect=409))["name"] == "DirectoryBusyError"
                await reset(app, other)
                await remove(app, other)
                (directory / "below/go").touch()
                await events.until("session.idle")
            await remove(app, directory)

    async def test_it_is_there_after_a_restart_of_the_server(self, tmp_path: Path) -> None:
        async with running_app(tmp_path) as app:
            directory = (await created(app))["directory"]
        async with running_app(tmp_path) as app:
            assert await app.get(ROUTE) == [directory]
            assert (await app.get("/path", params={"directory": directory}))["worktree"] == directory


class TestUsers:
    async def test_members_have_those_of_their_roots(self, tmp_path: Path) -> None:
        own, foreign = make_workspace(tmp_path.resolve() / "own"), make_workspace(tmp_path.resolve() / "foreign")
        async with running_app(tmp_path) as app:
            async with user(app, "anna", roots=[own]) as anna, user(app, "bert", roots=[foreign]) as bert:
                git(foreign, "commit", "-q", "--amend", "--allow-empty", "-m", "another project")
                async with user(app, "root", "admin") as admin, user(app, "vera", "viewer") as viewer:
                    directory = (await created(anna))["directory"]
                    query = {"directory": directory}
                    assert (await anna.get("/path", params=query))["directory"] == directory
                    session = await anna.post("/session", {}, params=query)
                    assert session["directory"] == directory
                    await bert.get("/path", params=query, expect=403)
                    assert await bert.get(ROUTE) == [] and await anna.get(ROUTE) == [directory]
                    for verb in (remove, reset):
                        await verb(bert, directory, expect=400)
                        await verb(viewer, directory, expect=403, directory=str(own))
                    await bert.post(ROUTE, {}, expect=403, params={"directory": str(own)})
                    await admin.get("/path", params=query)
                    await remove(anna, directory)

    async def test_one_repository_shared_by_two_checkouts_keeps_them_apart(self, tmp_path: Path) -> None:
        own = make_workspace(tmp_path.resolve() / "own")
        other = tmp_path.resolve() / "other"
        git(own, "worktree", "add", "-q", str(other))
        async with running_app(tmp_path) as app:
            async with user(app, "anna", roots=[own]) as anna, user(app, "bert", roots=[other]) as bert:
                of_anna, of_bert = (await created(anna))["directory"], (await created(bert))["directory"]
                assert await anna.get(ROUTE) == [of_anna] and await bert.get(ROUTE) == [str(other), of_bert]
                await bert.get("/path", params={"directory": of_anna}, expect=403)
                for verb in (remove, reset):
                    assert "no worktree" in (await verb(bert, of_anna, expect=400))["data"]["message"]
                shutil.rmtree(of_anna)
                await remove(bert, of_anna, expect=400)
                assert "opencode/" in git(own, "branch")
                of_anna = (await created(anna))["directory"]
                nested = await anna.post(ROUTE, {}, params={"directory": of_anna})
                await bert.get("/path", params={"directory": nested["directory"]}, expect=403)
                await anna.get("/path", params={"directory": nested["directory"]})

    async def test_a_checkout_around_the_roots_is_not_theirs_who_work_in_a_part_of_it(self, tmp_path: Path) -> None:
        whole = make_workspace(tmp_path.resolve() / "whole")
        part = whole / "part"
        part.mkdir()
        async with running_app(tmp_path) as app, user(app, "anna", roots=[part]) as anna:
            assert "vcs" not in await anna.get("/project/current")
            error = await anna.post(ROUTE, {}, expect=400)
            assert error["name"] == "WorktreeNotGitError"
            assert git(whole, "worktree", "list").count("\n") == 1
