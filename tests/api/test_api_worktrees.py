"""A project's directories: its checkouts, a directory that becomes a repository, and worktrees that the server makes."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from obstacles import endless_links
from refused_commits import refused_commits
from running_app import RunningApp, make_workspace, running_app
from sandboxed import needs_sandbox
from turns import bash, say, tools, until
from user_logins import user

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]
ROUTE = "/experimental/worktree"
HOLDS = [[bash("touch begun; until test -e go; do sleep 0.02; done")], [say()]]


def git(directory: Path | str, *args: str) -> str:
    author = ["-c", "user.email=a@b", "-c", "user.name=a"]
    return subprocess.run(["git", *author, *args], cwd=directory, check=True, capture_output=True, text=True).stdout


async def made(app: RunningApp, **wanted: str) -> tuple[Path, dict[str, Any]]:
    """With its files; the query that names it."""
    async with app.events("/global/event") as events:
        worktree: dict[str, str] = await app.post(ROUTE, wanted)
        ready = await events.until("worktree.ready")
    assert ready.data["directory"] == worktree["directory"]
    assert ready.properties == {"name": worktree["name"], "branch": worktree["branch"]}
    assert worktree["branch"] == f"opencode/{worktree['name']}"
    return Path(worktree["directory"]), {"params": {"directory": worktree["directory"]}}


async def remove(app: RunningApp, directory: object, /, *, expect: int = 200, **query: Any) -> Any:
    return await app.call("DELETE", ROUTE, {"directory": str(directory)}, expect=expect, **query)


async def reset(app: RunningApp, directory: object, /, *, expect: int = 200, **query: Any) -> Any:
    return await app.post(f"{ROUTE}/reset", {"directory": str(directory)}, expect=expect, **query)


async def project(app: RunningApp, **query: Any) -> dict[str, Any]:
    return await app.get("/project/current", **query)


async def directories(app: RunningApp) -> list[str]:
    return [each["directory"] for each in await app.get(f"/project/{(await project(app))['id']}/directories")]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path.resolve()) as running:
        git(running.directory, "branch", "-M", "main")
        yield running


# What a project has.


async def test_a_projects_directories_are_its_checkouts_of_which_members_are_told_those_in_their_roots(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    main, other, plain = make_workspace(base / "main"), base / "other", base / "plain"
    git(main, "worktree", "add", "-q", str(other))
    plain.mkdir()
    async with running_app(base, workspace=main, roots=str(base)) as app:
        for directory in (other, plain):
            await app.get("/path", params={"directory": str(directory)})
        assert await directories(app) == [str(main), str(other)]
        for none in ("unknown", "global"):
            assert await app.get(f"/project/{none}/directories") == []
        for root in (main, other):
            async with user(app, root.name, roots=[root]) as member:
                assert await directories(member) == [str(root)]
        other.rename(base / "moved")
        endless_links(other)
        async with user(app, "late", roots=[base]) as member:
            assert await directories(member) == [str(main)], "one that cannot be resolved hides no other"


async def test_a_directory_becomes_a_repository_unless_it_is_one_or_a_session_works_there(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    plain, own, repository = base / "plain", base / "own", make_workspace(base / "repository")
    for directory in (plain, own, repository / "below"):
        directory.mkdir()
    async with running_app(base, workspace=plain, roots=f"{own}:{repository}", turns=HOLDS) as app:
        session = await app.create_session(permission=ALLOW)
        async with app.events() as events:
            await app.prompt_async(session["id"], "Go")
            await until(lambda: (plain / "begun").exists())
            error = await app.post("/project/git/init", expect=409)
            assert error["name"] == "DirectoryBusyError" and not (plain / ".git").exists()
            (plain / "go").touch()
            await events.until("session.idle")
        assert (await app.get("/path"))["worktree"] == "/"
        new = await app.post("/project/git/init")
        assert (new["vcs"], new["worktree"]) == ("git", str(plain)) and not (plain / ".git/hooks").exists()
        assert (await app.get("/path"))["worktree"] == str(plain)
        shutil.rmtree(plain / ".git")
        await app.post("/project/git/init")
        assert (plain / ".git/HEAD").exists(), "again, when it was deleted"
        before = await project(app, params={"directory": str(repository)})
        for directory in (repository, repository / "below"):
            after = await app.post("/project/git/init", params={"directory": str(directory)})
            assert (after["id"], after["worktree"]) == (before["id"], before["worktree"])
        assert not (repository / "below/.git").exists()
        async with user(app, "anna", roots=[own]) as anna, user(app, "vera", "viewer") as viewer:
            await viewer.post("/project/git/init", expect=403)
            await anna.post("/project/git/init", expect=403, params={"directory": str(plain)})
            assert (await anna.post("/project/git/init"))["vcs"] == "git"


# Worktrees that are made.


async def test_a_worktree_has_the_files_of_head_on_a_branch_of_its_own(app: RunningApp) -> None:
    (app.directory / "a.txt").write_text("changed since\n")
    directory, _ = await made(app, name="My Feature / ../x!")
    assert directory.name == "my-feature-x" and directory.is_relative_to(app.data_dir.resolve())
    assert (directory / "a.txt").read_text() == "hello\nworld\n"
    assert git(directory, "status", "--porcelain", "--branch") == "## opencode/my-feature-x\n"
    assert sorted(path.name for path in directory.iterdir()) == [".git", "a.txt"], "no command ran"
    assert await app.get(ROUTE) == (await project(app))["sandboxes"] == [str(directory)]
    assert await directories(app) == [str(app.directory), str(directory)]


async def test_names_are_made_where_none_or_a_taken_one_is_given(app: RunningApp) -> None:
    git(app.directory, "branch", "opencode/taken")
    wanted: list[dict[str, str]] = [{}, {"name": "/"}, {"name": "taken"}, {"name": "x" * 500}]
    first, second, again, long = [(await made(app, **each))[0].name for each in wanted]
    assert first != second and first.count("-") == 1 and again.startswith("taken-") and len(long) == 64
    found = await asyncio.gather(*(app.post(ROUTE, {"name": "same"}) for _ in range(3)))
    assert len({worktree["directory"] for worktree in found}) == 3, "at one moment, too"


async def test_none_is_made_without_a_repository_or_a_commit(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    async with running_app(tmp_path, workspace=plain) as app:
        assert (await app.post(ROUTE, {}, expect=400))["name"] == "WorktreeNotGitError"
        for verb in (remove, reset):
            await verb(app, plain, expect=400)
        await app.post("/project/git/init")
        assert (await app.post(ROUTE, {}, expect=400))["name"] == "WorktreeCreateFailedError"
        assert await app.get(ROUTE) == []


async def test_files_that_cannot_be_checked_out_are_told_of(app: RunningApp) -> None:
    blob = git(app.directory, "rev-parse", "HEAD:a.txt").strip()
    (app.directory / ".git/objects" / blob[:2] / blob[2:]).unlink()
    async with app.events("/global/event") as events:
        worktree = await app.post(ROUTE, {"name": "x"})
        failed = await events.until("worktree.failed")
    assert failed.data["directory"] == worktree["directory"] and failed.properties["message"]
    assert await remove(app, worktree["directory"]) is True


async def test_a_repositorys_configuration_runs_nothing(app: RunningApp, tmp_path: Path) -> None:
    program, own = tmp_path / "program", app.directory / ".git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\ncat\n")
    program.chmod(0o755)
    for folder in ("hooks", "info"):
        (own / folder).mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (own / "hooks" / hook).symlink_to(program)
    for name in ("filter.x.smudge", "filter.x.clean", "filter.x.process", "core.fsmonitor"):
        git(app.directory, "config", name, str(program))
    (own / "info/attributes").write_text("* filter=x\n")
    directory, _ = await made(app)
    await reset(app, directory)
    await remove(app, directory)
    assert not (tmp_path / "ran").exists()


async def test_the_projects_start_command_runs_then_the_requests_and_ends_with_the_worktree(app: RunningApp) -> None:
    commands = {"commands": {"start": "cat a.txt > own; false"}}
    await app.call("PATCH", f"/project/{(await project(app))['id']}", commands)
    seconds = f"600.{os.getpid()}"
    directory, _ = await made(app, startCommand=f"cp own given; exec sleep {seconds}")

    def runs() -> bool:
        return any(seconds in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))

    await until(lambda: runs() and (directory / "given").read_text() == "hello\nworld\n")
    assert not (app.directory / "own").exists()
    await reset(app, directory)
    await until(lambda: (directory / "own").exists())
    assert not (directory / "given").exists()
    await remove(app, directory)
    await until(lambda: not runs())
    assert not directory.exists()


@needs_sandbox
async def test_start_commands_run_in_the_sandbox(app: RunningApp, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    command = f"cat {tmp_path}/secret {app.data_dir}/opensession.db > stolen; git log -1 > log; touch ended"
    directory, _ = await made(app, startCommand=command)
    await until(lambda: (directory / "ended").exists())
    assert (directory / "stolen").read_text() == "" and "first" in (directory / "log").read_text()


async def test_a_reset_makes_it_the_default_branch_and_nothing_besides(app: RunningApp) -> None:
    directory, _ = await made(app)
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
    assert git(directory, "status", "--porcelain", "--branch") == f"## opencode/{directory.name}\n"
    git(app.directory, "branch", "-M", "other")
    error = await reset(app, directory, expect=400)
    assert error["name"] == "WorktreeResetFailedError" and "default branch" in error["data"]["message"]


# Removed.


async def test_a_removed_one_goes_with_its_branch_also_asked_for_in_itself_or_when_its_files_are_gone(app: RunningApp) -> None:
    (first, query), (second, inside), (third, _) = [await made(app) for _ in range(3)]
    subprocess.run(["mkdir", "-p", "/".join("d" * 1500)], cwd=first, check=True)
    assert await remove(app, first) is True
    assert not first.exists()
    await app.get("/path", expect=403, **query)
    assert await remove(app, first) is True, "a second time too"
    await remove(app, second, **inside)
    shutil.rmtree(third)
    assert await app.get(ROUTE) == []
    await remove(app, third)
    assert (await project(app))["sandboxes"] == []
    assert git(app.directory, "worktree", "list").count("\n") == 1
    assert git(app.directory, "branch", "--format=%(refname:short)") == "main\n"


async def test_one_that_is_locked_or_that_the_database_refuses_to_forget_stays(app: RunningApp) -> None:
    directory, query = await made(app)
    git(app.directory, "worktree", "lock", str(directory))
    error = await remove(app, directory, expect=400)
    assert error["name"] == "WorktreeRemoveFailedError" and "locked" in error["data"]["message"]
    assert (await app.get("/path", **query))["worktree"] == str(directory)
    git(app.directory, "worktree", "unlock", str(directory))
    with refused_commits() as commits:
        commits.refuses = True
        await remove(app, directory, expect=503)
        assert (directory / "a.txt").exists()
    assert await remove(app, directory) is True and not directory.exists()


async def test_links_among_the_repositorys_worktrees_keep_none_from_being_removed(app: RunningApp) -> None:
    directory, _ = await made(app)
    entries = app.directory / ".git/worktrees"
    for number in range(20):  # some of them are listed before it
        (entries / f"{number}").symlink_to(directory.name)
    assert await remove(app, directory) is True and not directory.exists()
    assert not (entries / directory.name).exists()


async def test_nothing_begins_in_one_that_is_being_removed(app: RunningApp) -> None:
    directory, query = await made(app)
    session = await app.post("/session", {}, **query)
    async with app.services.worktrees.locks.lock(f"worktrees {(await project(app))['id']}"):
        async with app.events("/global/event") as events:
            removal = asyncio.create_task(remove(app, directory))
            await events.until("server.instance.disposed")
        assert (await app.prompt(session["id"], "Go", expect=403))["name"] == "DirectoryForbiddenError"
        assert directory.exists()
    assert await removal is True and not directory.exists()


async def test_what_this_server_did_not_make_is_left_alone(app: RunningApp, tmp_path: Path) -> None:
    own, _ = await made(app, name="own")
    by_hand, clone, foreign = tmp_path.resolve() / "by-hand", tmp_path.resolve() / "clone", own.parent / "foreign"
    git(app.directory, "worktree", "add", "-q", str(by_hand))
    git(tmp_path, "clone", "-q", str(app.directory), str(clone))
    git(clone, "worktree", "add", "-q", str(foreign))
    escapes = (own / "..", own / "../../..", own.parent, own / "a.txt", app.data_dir, tmp_path, "/", "", "own", f"{own}/.git")
    escapes += (own.parent / (300 * "x"),)
    for directory in (app.directory, by_hand, clone, foreign, *escapes):
        assert (await remove(app, directory, expect=400))["name"] == "WorktreeRemoveFailedError", directory
        assert (await reset(app, directory, expect=400))["name"] == "WorktreeResetFailedError", directory
    for directory in (app.directory, by_hand, clone, foreign, own):
        assert (directory / "a.txt").exists()


# Sessions and users in them.


async def test_a_turn_works_in_it_with_snapshots_and_a_revert_also_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        directory, query = await made(app)
    turns = [[bash("echo changed > a.txt; echo new > b.txt; pwd")], [say()]]
    async with running_app(tmp_path, turns=turns) as app:
        assert await app.get(ROUTE) == [str(directory)]
        session = await app.post("/session", {"permission": ALLOW}, **query)
        assert (session["directory"], session["projectID"]) == (str(directory), (await project(app))["id"])
        answer = await app.prompt(session["id"], "Go")
        messages = await app.messages(session["id"])
        assert answer["info"]["path"]["root"] == str(directory) in tools(messages)[0]["state"]["output"]
        patch = next(part for message in messages for part in message["parts"] if part["type"] == "patch")
        assert sorted(patch["files"]) == [str(directory / "a.txt"), str(directory / "b.txt")]
        assert len(await app.get("/vcs/status", **query)) == 2 and await app.get("/vcs/status") == []
        await app.post(f"/session/{session['id']}/revert", {"messageID": messages[0]["info"]["id"]})
        assert (directory / "a.txt").read_text() == "hello\nworld\n" and not (directory / "b.txt").exists()


async def test_it_is_neither_removed_nor_reset_while_a_turn_works_in_it(app: RunningApp) -> None:
    app.provider.add(*HOLDS)
    (directory, _), (other, _) = [await made(app) for _ in range(2)]
    below = directory / "below"
    below.mkdir()
    session = await app.post("/session", {"permission": ALLOW}, params={"directory": str(below)})
    async with app.events("/global/event") as events:
        await app.prompt_async(session["id"], "Go")
        await until(lambda: (below / "begun").exists())
        for verb in (remove, reset):
            assert (await verb(app, directory, expect=409))["name"] == "DirectoryBusyError"
        await reset(app, other)
        await remove(app, other)
        (below / "go").touch()
        await events.until("session.idle")
    await remove(app, directory)


async def test_members_have_those_of_their_roots(app: RunningApp, vera: RunningApp, root: RunningApp, tmp_path: Path) -> None:
    own, foreign = make_workspace(tmp_path.resolve() / "own"), make_workspace(tmp_path.resolve() / "foreign")
    git(foreign, "commit", "-q", "--amend", "--allow-empty", "-m", "another project")
    async with user(app, "anna", roots=[own]) as anna, user(app, "bert", roots=[foreign]) as bert:
        directory, query = await made(anna)
        assert (await anna.get("/path", **query))["directory"] == str(directory)
        assert (await anna.post("/session", {}, **query))["directory"] == str(directory)
        await bert.get("/path", expect=403, **query)
        assert await bert.get(ROUTE) == [] and await anna.get(ROUTE) == [str(directory)]
        for verb in (remove, reset):
            await verb(bert, directory, expect=400)
            await verb(vera, directory, expect=403, params={"directory": str(own)})
        await bert.post(ROUTE, {}, expect=403, params={"directory": str(own)})
        await root.get("/path", **query)
        sessions = [f"/session/{(await anna.post('/session', {}, **query))['id']}" for _ in range(2)]
        await remove(anna, directory)
        for each, who in zip(sessions, (anna, root), strict=True):
            await bert.call("DELETE", each, expect=404)
            await anna.post(f"{each}/fork", {}, expect=403)
            assert (await anna.call("PATCH", each, {"title": "Old"}, **query))["title"] == "Old"
            assert await who.call("DELETE", each) is True
        await remove(anna, directory)
    part = make_workspace(tmp_path.resolve() / "whole") / "part"
    part.mkdir()
    async with user(app, "carl", roots=[part]) as carl:
        assert "vcs" not in await project(carl), "a checkout around the roots is not theirs"
        assert (await carl.post(ROUTE, {}, expect=400))["name"] == "WorktreeNotGitError"
        assert git(part, "worktree", "list").count("\n") == 1


async def test_one_repository_shared_by_two_checkouts_keeps_them_apart(app: RunningApp, tmp_path: Path) -> None:
    own, other = make_workspace(tmp_path.resolve() / "own"), tmp_path.resolve() / "other"
    git(own, "worktree", "add", "-q", str(other))
    async with user(app, "anna", roots=[own]) as anna, user(app, "bert", roots=[other]) as bert:
        (of_anna, query), (of_bert, _) = await made(anna), await made(bert)
        assert await anna.get(ROUTE) == [str(of_anna)] and await bert.get(ROUTE) == [str(other), str(of_bert)]
        await bert.get("/path", expect=403, **query)
        for verb in (remove, reset):
            assert "no worktree" in (await verb(bert, of_anna, expect=400))["data"]["message"]
        shutil.rmtree(of_anna)
        await remove(bert, of_anna, expect=400)
        assert "opencode/" in git(own, "branch")
        _, query = await made(anna)
        nested = {"params": {"directory": (await anna.post(ROUTE, {}, **query))["directory"]}}
        await bert.get("/path", expect=403, **nested)
        await anna.get("/path", **nested)


async def test_a_worktree_that_the_database_refuses_to_note_leaves_nothing(app: RunningApp) -> None:
    before = git(app.directory, "worktree", "list", "--porcelain"), git(app.directory, "branch")
    with refused_commits() as commits:
        commits.refused_text = "data/worktree/"
        await app.post(ROUTE, {"name": "refused"}, expect=503)
    assert (git(app.directory, "worktree", "list", "--porcelain"), git(app.directory, "branch")) == before
    assert not [*(app.data_dir / "worktree").glob("[!.]*/*")]
    worktree, _ = await made(app, name="refused")
    assert worktree.name == "refused"
