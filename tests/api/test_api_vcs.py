"""What differs from a commit, and patches: `/vcs`, `/vcs/status`, `/vcs/diff`, `/vcs/diff/raw`, `/vcs/apply`."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from copied_database import copy_database
from running_app import RunningApp, make_workspace, running_app
from turns import until
from user_logins import user

from app.workspace.vcs import comparison

AUTHOR = ["-c", "user.email=a@b", "-c", "user.name=a", "-c", "protocol.file.allow=always"]


def git(directory: Path, *args: str) -> str:
    return subprocess.run(["git", *AUTHOR, *args], cwd=directory, check=True, capture_output=True, text=True).stdout


def commit(directory: Path) -> None:
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "more")


def change_of(name: str, before: str, after: str) -> str:
    return f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{before}\n+{after}\n"


def new_file(name: str, text: str, mode: str = "100644") -> str:
    return f"diff --git a/{name} b/{name}\nnew file mode {mode}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{text}\n"


def set_attributes(directory: Path, text: str) -> None:
    (directory / ".git/info").mkdir(exist_ok=True)
    (directory / ".git/info/attributes").write_text(text)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path.resolve(), roots=str(tmp_path.resolve())) as running:
        yield running


async def status(app: RunningApp, **query: Any) -> dict[str, tuple[str, int, int]]:
    found = await app.get("/vcs/status", params=query)
    return {file["file"]: (file["status"], file["additions"], file["deletions"]) for file in found}


async def patches(app: RunningApp, **query: Any) -> dict[str, str]:
    found = await app.get("/vcs/diff", params={"mode": "git", **query})
    return {file["file"]: file["patch"] for file in found}


async def raw(app: RunningApp, **query: Any) -> str:
    response = await app.client.get("/vcs/diff/raw", params=query)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/x-diff; charset=utf-8")
    return response.text


async def apply(app: RunningApp, patch: str, *, expect: int = 200, **query: Any) -> Any:
    return await app.post("/vcs/apply", {"patch": patch}, expect=expect, params=query)


async def refused(app: RunningApp, patch: str, **query: Any) -> str:
    """What the refusal says; nothing is different afterwards."""
    before = git(app.directory, "status", "--porcelain", "--ignored")
    error = await apply(app, patch, expect=400, **query)
    assert (error["name"], error["data"]["reason"]) == ("VcsApplyError", "not-clean")
    assert git(app.directory, "status", "--porcelain", "--ignored") == before
    return str(error["data"]["message"])


def change_everything(directory: Path) -> None:
    """One of each kind, since a commit that has the others."""
    for name, text in {"gone.txt": "1\n2\n", "old name.txt": "x\ny\n", "sub/below.txt": "b\n", "same.txt": "s\n"}.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    (directory / "data.bin").write_bytes(bytes(range(256)))
    (directory / "run.sh").write_text("true\n")
    (directory / "type").write_text("a file\n")
    (directory / "ignored too").write_text("but known\n")
    commit(directory)
    (directory / "a.txt").write_text("hello\nWORLD\n")
    (directory / "gone.txt").unlink()
    git(directory, "mv", "old name.txt", "new name.txt")
    (directory / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (directory / "unknown.bin").write_bytes(bytes(range(256)))
    (directory / "run.sh").chmod(0o755)
    (directory / "staged.txt").write_text("s\n")
    git(directory, "add", "staged.txt")
    (directory / "sub/below.txt").write_text("B")
    (directory / 'ü "q"\\\t.txt').write_text("odd\n")
    (directory / "diff --git").write_text("diff --git a/x b/x\n--- a/x\n")
    (directory / "empty").touch()
    (directory / "same.txt").touch()
    (directory / "type").unlink()
    (directory / "type").symlink_to("/etc/passwd")
    (directory / ".gitignore").write_text("ignored*\n")
    (directory / "ignored").write_text("i\n")
    make_workspace(directory / "nested")


EVERYTHING = {
    "a.txt": ("modified", 1, 1),
    "gone.txt": ("deleted", 0, 2),
    "old name.txt": ("deleted", 0, 2),
    "new name.txt": ("added", 2, 0),
    "data.bin": ("modified", 0, 0),
    "unknown.bin": ("added", 0, 0),
    "run.sh": ("modified", 0, 0),
    "staged.txt": ("added", 1, 0),
    "sub/below.txt": ("modified", 1, 1),
    'ü "q"\\\t.txt': ("added", 1, 0),
    "diff --git": ("added", 2, 0),
    "empty": ("added", 0, 0),
    "type": ("modified", 1, 1),
    ".gitignore": ("added", 1, 0),
}


class TestComparison:
    async def test_every_kind_of_change_stands_in_the_status(self, app: RunningApp) -> None:
        assert await status(app) == {}
        change_everything(app.directory)
        before = git(app.directory, "status", "--porcelain=v2")
        assert await status(app) == EVERYTHING
        assert list(await status(app)) == sorted(EVERYTHING, key=str.encode)
        assert git(app.directory, "status", "--porcelain=v2") == before, "the repository's own index is as it was"

    async def test_a_patch_for_each_that_git_takes(self, app: RunningApp) -> None:
        change_everything(app.directory)
        found = await patches(app)
        assert found.keys() == EVERYTHING.keys()
        assert found["gone.txt"].endswith("--- a/gone.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n")
        assert found["sub/below.txt"].endswith("@@ -1 +1 @@\n-b\n+B\n\\ No newline at end of file\n")
        assert "Binary files a/data.bin and b/data.bin differ\n" in found["data.bin"]
        assert found["run.sh"] == "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
        assert found["diff --git"].endswith("+diff --git a/x b/x\n+--- a/x\n")
        assert found["type"].count("diff --git") == 2 and "root:" not in found["type"]
        for name in found.keys() - {"data.bin", "unknown.bin"}:
            checked = subprocess.run(["git", "apply", "--check", "-R"], cwd=app.directory, input=found[name].encode())
            assert checked.returncode == 0, found[name]

    async def test_context_is_the_whole_file_unless_named(self, app: RunningApp) -> None:
        lines = [f"{number}\n" for number in range(20)]
        (app.directory / "a.txt").write_text("".join(lines))
        commit(app.directory)
        (app.directory / "a.txt").write_text("".join([*lines, "new\n"]))
        assert "@@ -1,20 +1,21 @@" in (await patches(app))["a.txt"]
        assert "@@ -20,0 +21 @@" in (await patches(app, context=0))["a.txt"]
        assert "@@ -18,3 +18,4 @@" in (await patches(app, context=3))["a.txt"]
        assert "@@ -1,20 +1,21 @@" in (await patches(app, context=2**63))["a.txt"]

    async def test_a_directory_below_shows_its_own(self, app: RunningApp) -> None:
        change_everything(app.directory)
        below = str(app.directory / "sub")
        assert (await status(app, directory=below)).keys() == {"sub/below.txt"}
        assert (await patches(app, directory=below)).keys() == {"sub/below.txt"}
        assert (await raw(app, directory=below)).count("diff --git") == 1

    async def test_a_branch_is_compared_with_where_it_left_the_default_branch(self, app: RunningApp, tmp_path: Path) -> None:
        git(app.directory, "branch", "-M", "trunk")
        assert "default_branch" not in await app.get("/vcs")
        git(tmp_path, "clone", "-q", str(app.directory), "clone")
        git(tmp_path / "clone", "checkout", "-qb", "main")
        cloned = await app.get("/vcs", params={"directory": str(tmp_path / "clone")})
        assert cloned == {"branch": "main", "default_branch": "trunk"}, "that of the remote comes first"
        git(app.directory, "branch", "-M", "main")
        assert await app.get("/vcs") == {"branch": "main", "default_branch": "main"}
        (app.directory / "a.txt").write_text("changed\n")
        assert await patches(app, mode="branch") == {}, "on the default branch itself"
        git(app.directory, "checkout", "-qb", "feature")
        commit(app.directory)
        (app.directory / "new.txt").write_text("n\n")
        assert await app.get("/vcs") == {"branch": "feature", "default_branch": "main"}
        assert (await patches(app, mode="branch")).keys() == {"a.txt", "new.txt"}
        assert (await patches(app)).keys() == {"new.txt"}
        git(app.directory, "checkout", "-q", "--detach")
        assert await app.get("/vcs") == {"branch": "", "default_branch": "main"}
        assert (await patches(app, mode="branch")).keys() == {"a.txt", "new.txt"}

    async def test_before_the_first_commit_all_is_new(self, app: RunningApp, tmp_path: Path) -> None:
        new = tmp_path.resolve() / "new"
        new.mkdir()
        git(new, "init", "-q", "--initial-branch=main")
        (new / "x").write_text("x\n")
        assert await status(app, directory=str(new)) == {"x": ("added", 1, 0)}
        assert (await patches(app, directory=str(new)))["x"].endswith("@@ -0,0 +1 @@\n+x\n")
        assert await patches(app, directory=str(new), mode="branch") == {}
        assert await app.get("/vcs", params={"directory": str(new)}) == {"branch": "main"}
        assert not (new / ".git/index").exists()

    async def test_outside_git_nothing_differs(self, app: RunningApp, tmp_path: Path) -> None:
        plain = tmp_path.resolve() / "plain"
        plain.mkdir()
        (plain / "x").write_text("x\n")
        query = {"directory": str(plain)}
        assert await app.get("/vcs", params=query) == {"branch": ""}
        assert (await status(app, **query), await patches(app, **query), await raw(app, **query)) == ({}, {}, "")
        error = await apply(app, new_file("n", "n"), expect=400, **query)
        assert (error["name"], error["data"]["reason"]) == ("VcsApplyError", "non-git")

    async def test_a_file_in_conflict_stands_there_once(self, app: RunningApp) -> None:
        git(app.directory, "checkout", "-qb", "other")
        (app.directory / "a.txt").write_text("theirs\n")
        commit(app.directory)
        git(app.directory, "checkout", "-q", "-")
        (app.directory / "a.txt").write_text("ours\n")
        commit(app.directory)
        (app.directory / "new.txt").write_text("n\n")
        subprocess.run(["git", *AUTHOR, "merge", "-q", "other"], cwd=app.directory)
        found = await patches(app)
        assert found.keys() == {"a.txt", "new.txt"}
        assert "<<<<<<<" in found["a.txt"] and "Unmerged" not in "".join(found.values())

    async def test_what_is_huge_is_listed_without_its_patch(self, app: RunningApp) -> None:
        line = "x" * 999 + "\n"
        for name in "bcd":
            (app.directory / f"{name}.txt").write_text(line * 4000)
        (app.directory / "e.txt").write_text(line * (comparison.MAX_PATCH_BYTES // 1000 + 1))
        (app.directory / "f.txt").write_text("small\n")
        found = await patches(app)
        assert sum(map(len, found.values())) < comparison.MAX_PATCH_BYTES + 10_000
        assert [len(found[f"{name}.txt"]) > 4_000_000 for name in "bcd"] == [True, True, False]
        assert found["d.txt"].startswith("Index: d.txt\n=====") and "Binary files" in found["e.txt"]
        assert found["f.txt"].endswith("+small\n")
        assert (await status(app))["d.txt"] == ("added", 4000, 0)
        assert (await app.get("/vcs/diff/raw", expect=413))["name"] == "PayloadTooLargeError"

    async def test_a_patch_that_git_was_stopped_at_is_not_shown(self, app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparison, "MAX_PATCH_BYTES", 1000)
        for number in range(40):
            (app.directory / f"{number:02}.txt").write_text("y\n" * 100)
        found = await patches(app)
        assert len(found) == 40 and found["00.txt"].endswith("+y\n")
        assert all(patch.startswith("Index:") for patch in list(found.values())[5:])

    async def test_a_repositorys_configuration_runs_nothing_and_changes_nothing(self, app: RunningApp, tmp_path: Path) -> None:
        change_everything(app.directory)
        expected, whole = await patches(app), await raw(app)
        ran = tmp_path / "ran"
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
        program.chmod(0o755)
        programs = ("diff.external", "diff.x.command", "diff.x.textconv", "filter.x.clean", "filter.x.smudge", "filter.x.process")
        for name in programs:
            git(app.directory, "config", name, str(program))
        settings = {"core.fsmonitor": program, "core.pager": program, "filter.x.required": "true", "diff.noprefix": "true"}
        settings |= {"diff.mnemonicPrefix": "true", "color.ui": "always", "diff.renames": "copies", "diff.context": "0"}
        settings |= {"diff.relative": "true", "core.splitIndex": "true", "diff.orderFile": "none", "core.hooksPath": tmp_path}
        for name, value in settings.items():
            git(app.directory, "config", name, str(value))
        set_attributes(app.directory, "* diff=x filter=x\n")
        assert (await patches(app), await raw(app)) == (expected, whole)
        await apply(app, new_file("n.txt", "n"))
        assert (app.directory / "n.txt").read_text() == "n\n" and not ran.exists()

    async def test_a_repository_with_missing_objects_fetches_nothing(self, app: RunningApp, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        commit_id = git(app.directory, "rev-parse", "HEAD:a.txt").strip()
        (app.directory / ".git/objects" / commit_id[:2] / commit_id[2:]).unlink()
        settings = {"extensions.partialClone": "origin", "remote.origin.promisor": "true", "protocol.ext.allow": "always"}
        settings |= {"remote.origin.url": f"ext::sh -c touch% {ran}", "core.repositoryFormatVersion": "1"}
        for name, value in settings.items():
            git(app.directory, "config", name, value)
        (app.directory / "a.txt").write_text("other\n")
        error = await app.get("/vcs/diff", params={"mode": "git"}, expect=500)
        assert error["name"] == "GitError" and not ran.exists()


class TestApply:
    async def test_what_the_raw_patch_says_comes_about_elsewhere(self, app: RunningApp, tmp_path: Path) -> None:
        change_everything(app.directory)
        (app.directory / "type").unlink()
        (app.directory / "type").write_text("still a file\n")
        there = tmp_path.resolve() / "there"
        git(app.directory, "worktree", "add", "-q", "--detach", str(there))
        assert await apply(app, await raw(app), directory=str(there)) == {"applied": True}
        assert await status(app, directory=str(there)) == await status(app)
        assert await raw(app, directory=str(there)) == await raw(app)

    async def test_a_rename_and_a_copy(self, app: RunningApp) -> None:
        (app.directory / "b.txt").write_text("".join(f"{number}\n" for number in range(50)))
        commit(app.directory)
        (app.directory / "b.txt").write_text("".join(f"{number}\n" for number in range(51)))
        (app.directory / "c d.txt").write_text("".join(f"{number}\n" for number in range(51)))
        git(app.directory, "mv", "a.txt", "moved.txt")
        git(app.directory, "add", "-A")
        patch = git(app.directory, "diff", "--cached", "-M", "-C", "--find-copies-harder")
        assert "rename from a.txt" in patch and "copy from b.txt" in patch
        git(app.directory, "reset", "-q", "--hard")
        await apply(app, patch)
        assert (await status(app)).keys() == {"a.txt", "b.txt", "moved.txt", "c d.txt"}
        assert (app.directory / "moved.txt").read_text() == "hello\nworld\n" and not (app.directory / "a.txt").exists()

    async def test_all_or_nothing(self, app: RunningApp) -> None:
        first = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-hello\n+HELLO\n world\n"
        told = await refused(app, first + change_of("none.txt", "x", "y"))
        assert "none.txt" in told and (app.directory / "a.txt").read_text() == "hello\nworld\n"
        assert "a.txt" in await refused(app, change_of("a.txt", "other", "y"))
        for nonsense in ("", "x", "--- a/a.txt\n+++ b/a.txt\n"):
            await refused(app, nonsense)
        assert await apply(app, first) == {"applied": True}
        await refused(app, first)

    async def test_what_cannot_be_written_is_undone(self, app: RunningApp) -> None:
        closed = app.directory / "closed"
        closed.mkdir()
        (closed / "x").symlink_to("/dev/null")
        told = await refused(app, new_file("b.txt", "b") + new_file("closed/x", "y") + new_file("c/d.txt", "d"))
        assert "closed/x" in told and not (app.directory / "b.txt").exists()

    async def test_nothing_is_written_outside_or_into_git(self, app: RunningApp, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (app.directory / "link").symlink_to(outside)
        config = (app.directory / ".git/config").read_text()
        names = ("../out.txt", "/tmp/out.txt", ".git/config", ".GIT/hooks/x", "sub/../../out.txt", "link/out.txt")
        for name in names:
            await refused(app, new_file(name, "out"))
            await refused(app, new_file("fine.txt", "fine") + new_file(name, "out"))
        assert list(outside.iterdir()) == [] and not (tmp_path / "out.txt").exists()
        assert (app.directory / ".git/config").read_text() == config

    async def test_links_are_neither_made_nor_followed(self, app: RunningApp, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("s\n")
        (app.directory / "linked").symlink_to(secret)
        made = new_file("made", "/etc", mode="120000").removesuffix("\n") + "\n\\ No newline at end of file\n"
        assert "symbolic link" in await refused(app, made)
        await refused(app, made + new_file("made/x", "y"))
        assert "none" not in await refused(app, change_of("linked", "s", "t"))
        assert secret.read_text() == "s\n"

    async def test_a_directory_below_takes_patches_of_its_own(self, app: RunningApp) -> None:
        (app.directory / "sub").mkdir()
        below = str(app.directory / "sub")
        assert below in await refused(app, new_file("top.txt", "t"), directory=below)
        await apply(app, new_file("sub/in.txt", "i"), directory=below)
        assert (app.directory / "sub/in.txt").read_text() == "i\n"

    async def test_modes_and_folders(self, app: RunningApp) -> None:
        await apply(app, new_file("deep/er/run.sh", "true", mode="100755"))
        path = app.directory / "deep/er/run.sh"
        assert os.access(path, os.X_OK)
        await apply(app, "diff --git a/deep/er/run.sh b/deep/er/run.sh\nold mode 100755\nnew mode 100644\n")
        assert not os.access(path, os.X_OK)
        await apply(app, "--- a/deep/er/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-true\n")
        assert not (app.directory / "deep").exists()

    async def test_a_patch_is_refused_beside_a_turn_in_the_checkout(self, tmp_path: Path) -> None:
        command = [
            {"tool": "bash", "args": {"command": "touch begun; until test -e go; do sleep 0.02; done", "description": "d"}}
        ]
        async with running_app(tmp_path, turns=[command, [{"text": "Done."}]]) as app:
            session = await app.create_session(permission=[{"permission": "*", "pattern": "*", "action": "allow"}])
            async with app.events() as events:
                await app.prompt_async(session["id"], "Go")
                await until(lambda: (app.directory / "begun").exists())
                (app.directory / "sub").mkdir()
                for directory in (app.directory, app.directory / "sub"):
                    error = await apply(app, new_file("sub/n.txt", "n"), expect=409, directory=str(directory))
                    assert error["name"] == "DirectoryBusyError" and str(app.directory) in error["data"]["message"]
                (app.directory / "go").touch()
                await events.until("session.idle")
            await apply(app, new_file("sub/n.txt", "n"))


async def test_a_patch_is_refused_beside_a_turn_on_another_server(tmp_path: Path) -> None:
    """Here one whose database is a copy, in which the lease is held."""
    wait = [{"tool": "bash", "args": {"command": "touch begun; sleep 600", "description": "d"}}]
    async with running_app(tmp_path, turns=[wait]) as working:
        session = await working.create_session(permission=[{"permission": "*", "pattern": "*", "action": "allow"}])
        await working.prompt_async(session["id"], "Go")
        await until(lambda: (working.directory / "begun").exists())
        await asyncio.to_thread(copy_database, working.data_dir, tmp_path / "copy")
    async with running_app(tmp_path, data_dir=tmp_path / "copy") as app:
        assert not app.services.live.directories()
        assert (await apply(app, new_file("n.txt", "n"), expect=409))["name"] == "DirectoryBusyError"


async def test_a_member_sees_and_patches_their_root_alone(tmp_path: Path) -> None:
    root = make_workspace(tmp_path.resolve() / "own")
    foreign = make_workspace(tmp_path.resolve() / "foreign")
    (foreign / "a.txt").write_text("theirs\n")
    async with running_app(tmp_path) as app, user(app, "anna", roots=[root]) as anna, user(app, "vera", "viewer") as viewer:
        for path in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw"):
            await anna.get(path, params={"directory": str(foreign), "mode": "git"}, expect=403)
        await apply(anna, new_file("n", "n"), expect=403, directory=str(foreign))
        await apply(anna, new_file("n", "n"))
        assert await status(anna) == {"n": ("added", 1, 0)}
        await apply(viewer, new_file("n", "n"), expect=403)
    shutil.rmtree(root)
