"""What differs from a commit, and patches: `/vcs`, `/vcs/status`, `/vcs/diff`, `/vcs/diff/raw`, `/vcs/apply`."""

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from copied_database import copy_database
from git_files import put_file
from running_app import RunningApp, make_workspace, running_app
from turns import bash, say, until
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
        put_file(directory / name, text)
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


async def test_every_kind_of_change_stands_in_the_status_and_has_a_patch_that_git_takes(app: RunningApp) -> None:
    assert await status(app) == {}
    change_everything(app.directory)
    before = git(app.directory, "status", "--porcelain=v2")
    assert await status(app) == EVERYTHING
    assert list(await status(app)) == sorted(EVERYTHING, key=str.encode)
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
    below = str(app.directory / "sub")
    assert (await status(app, directory=below)).keys() == (await patches(app, directory=below)).keys() == {"sub/below.txt"}
    assert (await raw(app, directory=below)).count("diff --git") == 1
    assert git(app.directory, "status", "--porcelain=v2") == before, "the repository's own index is as it was"


async def test_context_is_the_whole_file_unless_named(app: RunningApp) -> None:
    lines = [f"{number}\n" for number in range(20)]
    (app.directory / "a.txt").write_text("".join(lines))
    commit(app.directory)
    (app.directory / "a.txt").write_text("".join([*lines, "new\n"]))
    hunks = {0: "@@ -20,0 +21 @@", 3: "@@ -18,3 +18,4 @@", 2**63: "@@ -1,20 +1,21 @@"}
    assert "@@ -1,20 +1,21 @@" in (await patches(app))["a.txt"]
    for context, hunk in hunks.items():
        assert hunk in (await patches(app, context=context))["a.txt"]


async def test_a_branch_is_compared_with_where_it_left_the_default_branch(app: RunningApp, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("is_git", [True, False], ids=["before the first commit", "outside git"])
async def test_where_there_is_no_commit(app: RunningApp, tmp_path: Path, is_git: bool) -> None:
    new = tmp_path.resolve() / "new"
    put_file(new / "x", "x\n")
    query = {"directory": str(new)}
    if is_git:
        git(new, "init", "-q", "--initial-branch=main")
        assert await status(app, **query) == {"x": ("added", 1, 0)}
        assert (await patches(app, **query))["x"].endswith("@@ -0,0 +1 @@\n+x\n")
        assert await patches(app, **query, mode="branch") == {}
        assert not (new / ".git/index").exists()
    else:
        assert (await status(app, **query), await patches(app, **query), await raw(app, **query)) == ({}, {}, "")
        error = await apply(app, new_file("n", "n"), expect=400, **query)
        assert (error["name"], error["data"]["reason"]) == ("VcsApplyError", "non-git")
    assert await app.get("/vcs", params=query) == {"branch": "main" if is_git else ""}


async def test_a_file_in_conflict_stands_there_once(app: RunningApp) -> None:
    for branch, text in (("other", "theirs\n"), ("-", "ours\n")):
        git(app.directory, "checkout", "-q", *(["-b", branch] if branch == "other" else [branch]))
        (app.directory / "a.txt").write_text(text)
        commit(app.directory)
    (app.directory / "new.txt").write_text("n\n")
    subprocess.run(["git", *AUTHOR, "merge", "-q", "other"], cwd=app.directory)
    found = await patches(app)
    assert found.keys() == {"a.txt", "new.txt"}
    assert "<<<<<<<" in found["a.txt"] and "Unmerged" not in "".join(found.values())


async def test_what_is_huge_is_listed_without_its_patch(app: RunningApp) -> None:
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


async def test_untracked_files_are_listed_up_to_a_bound_and_a_patch_leaves_none_out(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MAX_UNTRACKED", 2)
    for name in ("x", "y", "z"):
        (app.directory / name).write_text(name)
    assert [file["file"] for file in await app.get("/vcs/diff", params={"mode": "git"})] == ["x", "y"]
    assert "untracked" in (await app.get("/vcs/diff/raw", expect=413))["data"]["message"]
    (app.directory / "z").unlink()
    assert "+++ b/y" in (await app.client.get("/vcs/diff/raw")).text


async def test_a_patch_that_git_was_stopped_at_is_not_shown(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MAX_PATCH_BYTES", 1000)
    for number in range(40):
        (app.directory / f"{number:02}.txt").write_text("y\n" * 100)
    found = await patches(app)
    assert len(found) == 40 and found["00.txt"].endswith("+y\n")
    assert all(patch.startswith("Index:") for patch in list(found.values())[5:])


async def test_a_repositorys_configuration_changes_nothing_and_what_is_applied_runs_nothing(
    app: RunningApp, tmp_path: Path
) -> None:
    """What it runs when it is read: tests/faults/test_hostile_repositories.py."""
    change_everything(app.directory)
    expected, whole = await patches(app), await raw(app)
    ran, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    settings = dict.fromkeys(
        ("filter.x.clean", "filter.x.smudge", "filter.x.process", "core.fsmonitor", "diff.x.textconv"), program
    )
    settings |= {"filter.x.required": "true", "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "color.ui": "always"}
    settings |= {"diff.renames": "copies", "diff.context": "0", "diff.relative": "true", "core.splitIndex": "true"}
    for name, value in {**settings, "diff.orderFile": "none", "core.hooksPath": tmp_path}.items():
        git(app.directory, "config", name, str(value))
    (app.directory / ".git/info").mkdir(exist_ok=True)
    (app.directory / ".git/info/attributes").write_text("* diff=x filter=x\n")
    assert (await patches(app), await raw(app)) == (expected, whole)
    await apply(app, new_file("n.txt", "n"))
    assert (app.directory / "n.txt").read_text() == "n\n" and not ran.exists()


async def test_objects_that_are_missing_are_an_error(app: RunningApp) -> None:
    blob = git(app.directory, "rev-parse", "HEAD:a.txt").strip()
    (app.directory / ".git/objects" / blob[:2] / blob[2:]).unlink()
    (app.directory / "a.txt").write_text("other\n")
    assert (await app.get("/vcs/diff", params={"mode": "git"}, expect=500))["name"] == "GitError"


# Patches.


async def test_what_the_raw_patch_says_comes_about_elsewhere(app: RunningApp, tmp_path: Path) -> None:
    change_everything(app.directory)
    (app.directory / "type").unlink()
    (app.directory / "type").write_text("still a file\n")
    there = {"directory": str(tmp_path.resolve() / "there")}
    git(app.directory, "worktree", "add", "-q", "--detach", there["directory"])
    assert await apply(app, await raw(app), **there) == {"applied": True}
    assert (await status(app, **there), await raw(app, **there)) == (await status(app), await raw(app))


async def test_a_checkout_whose_line_ends_git_converts_keeps_them(app: RunningApp) -> None:
    """Its patches have those of the repository."""
    (app.directory / ".gitattributes").write_text("*.txt text eol=crlf\n")
    for name, data in {"w.txt": b"1\r\n2\r\n", "a b.txt": b"x\r\ny\r\n", "raw.bin": b"1\r\n2\r\n"}.items():
        (app.directory / name).write_bytes(data)
    commit(app.directory)
    changed = {"w.txt": b"1\r\n3\r\n", "a b.txt": b"x\r\ny\r\nz", "raw.bin": b"1\r\n2\r\n3\n"}
    for name, data in changed.items():
        (app.directory / name).write_bytes(data)
    patch = await raw(app)
    git(app.directory, "checkout", "-q", ".")
    (app.directory / "w.txt").write_bytes(b"1\r\n2\n")
    assert "w.txt" in await refused(app, patch), "one with both line ends is changed by hand"
    (app.directory / "w.txt").write_bytes(b"1\r\n2\r\n")
    assert await apply(app, patch) == {"applied": True}
    assert {name: (app.directory / name).read_bytes() for name in changed} == changed
    assert "w.txt" in await refused(app, patch)


async def test_a_rename_and_a_copy(app: RunningApp) -> None:
    lines = [f"{number}\n" for number in range(51)]
    (app.directory / "b.txt").write_text("".join(lines[:50]))
    commit(app.directory)
    for name in ("b.txt", "c d.txt"):
        (app.directory / name).write_text("".join(lines))
    git(app.directory, "mv", "a.txt", "moved.txt")
    git(app.directory, "add", "-A")
    patch = git(app.directory, "diff", "--cached", "-M", "-C", "--find-copies-harder")
    assert "rename from a.txt" in patch and "copy from b.txt" in patch
    git(app.directory, "reset", "-q", "--hard")
    await apply(app, patch)
    assert (await status(app)).keys() == {"a.txt", "b.txt", "moved.txt", "c d.txt"}
    assert (app.directory / "moved.txt").read_text() == "hello\nworld\n" and not (app.directory / "a.txt").exists()


async def test_what_a_failed_patch_has_removed_is_there_again(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was to put a folder in the place of a file that is there still."""
    for name in ("0.txt", "1.txt"):
        (app.directory / name).write_text("x\n")
    commit(app.directory)
    (app.directory / "a.txt").unlink()
    (app.directory / "a.txt").mkdir()
    (app.directory / "a.txt/inner").write_text("y\n")
    git(app.directory, "rm", "-q", "0.txt", "1.txt")
    git(app.directory, "add", "-A")
    patch = git(app.directory, "diff", "--cached", "--no-renames")
    git(app.directory, "reset", "-q", "--hard")
    unlink = os.unlink

    def unlink_others(path: str, **options: Any) -> None:
        if path == "1.txt":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink_others)
        told = await refused(app, patch)
    assert "1.txt" in told and "undone" not in told and await status(app) == {}


async def test_all_or_nothing_is_applied(app: RunningApp) -> None:
    first = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-hello\n+HELLO\n world\n"
    told = await refused(app, first + change_of("none.txt", "x", "y"))
    assert "none.txt" in told and (app.directory / "a.txt").read_text() == "hello\nworld\n"
    assert "a.txt" in await refused(app, change_of("a.txt", "other", "y"))
    for nonsense in ("", "x", "--- a/a.txt\n+++ b/a.txt\n"):
        await refused(app, nonsense)
    assert "split it" in await refused(app, "".join(f"--- a/{number}\n" for number in range(20_000))), "two spellings of each"
    assert "200 folders" in await refused(app, new_file("a/" * 1500 + "b.txt", "b"))
    (app.directory / "closed").mkdir()
    (app.directory / "closed/x").symlink_to("/dev/null")
    told = await refused(app, new_file("b.txt", "b") + new_file("closed/x", "y") + new_file("c/d.txt", "d"))
    assert "closed/x" in told and not (app.directory / "b.txt").exists(), "what cannot be written is undone"
    open_before = len(os.listdir("/dev/fd"))
    assert "closed" in await refused(app, change_of("closed", "x", "y"))
    assert len(os.listdir("/dev/fd")) <= open_before
    assert await apply(app, first) == {"applied": True}
    await refused(app, first)


async def test_nothing_is_written_outside_or_into_git_and_links_are_neither_made_nor_followed(
    app: RunningApp, tmp_path: Path
) -> None:
    outside, secret = tmp_path / "outside", tmp_path / "secret"
    outside.mkdir()
    secret.write_text("s\n")
    for link, target in (("link", outside), ("linked", secret)):
        (app.directory / link).symlink_to(target)
    config = (app.directory / ".git/config").read_text()
    for name in ("../out.txt", "/tmp/out.txt", ".git/config", ".GIT/hooks/x", "sub/../../out.txt", "link/out.txt"):
        await refused(app, new_file(name, "out"))
        await refused(app, new_file("fine.txt", "fine") + new_file(name, "out"))
    made = new_file("made", "/etc", mode="120000").removesuffix("\n") + "\n\\ No newline at end of file\n"
    assert "symbolic link" in await refused(app, made)
    await refused(app, made + new_file("made/x", "y"))
    assert "none" not in await refused(app, change_of("linked", "s", "t"))
    assert list(outside.iterdir()) == [] and not (tmp_path / "out.txt").exists() and secret.read_text() == "s\n"
    assert (app.directory / ".git/config").read_text() == config


async def test_modes_folders_and_a_directory_below(app: RunningApp) -> None:
    path = app.directory / "deep/er/run.sh"
    await apply(app, new_file("deep/er/run.sh", "true", mode="100755"))
    assert os.access(path, os.X_OK)
    await apply(app, "diff --git a/deep/er/run.sh b/deep/er/run.sh\nold mode 100755\nnew mode 100644\n")
    assert not os.access(path, os.X_OK)
    below = str(app.directory / "deep")
    assert below in await refused(app, new_file("top.txt", "t"), directory=below), "which takes patches of its own"
    latin = new_file("NAME", "t").replace("a/NAME", r'"a/\377"').replace("b/NAME", r'"b/\377"')
    assert "names \ufffd" in await refused(app, latin, directory=below)
    await apply(app, new_file("deep/in.txt", "i"), directory=below)
    assert (app.directory / "deep/in.txt").read_text() == "i\n"
    await apply(app, "--- a/deep/er/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-true\n")
    assert not (app.directory / "deep/er").exists()


ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]


async def test_a_patch_is_refused_beside_a_turn_in_the_checkout_also_on_another_server(tmp_path: Path) -> None:
    """The other one's database is a copy, in which the lease is held."""
    turns = [[bash("touch begun; until test -e go; do sleep 0.02; done")], [say()]]
    async with running_app(tmp_path, turns=turns) as app:
        session = await app.create_session(permission=ALLOW)
        async with app.events() as events:
            await app.prompt_async(session["id"], "Go")
            await until(lambda: (app.directory / "begun").exists())
            (app.directory / "sub").mkdir()
            for directory in (app.directory, app.directory / "sub"):
                error = await apply(app, new_file("sub/n.txt", "n"), expect=409, directory=str(directory))
                assert error["name"] == "DirectoryBusyError" and str(app.directory) in error["data"]["message"]
            await asyncio.to_thread(copy_database, app.data_dir, tmp_path / "copy")
            async with running_app(tmp_path, data_dir=tmp_path / "copy") as other:
                assert not other.services.live.directories()
                assert (await apply(other, new_file("n.txt", "n"), expect=409))["name"] == "DirectoryBusyError"
            (app.directory / "go").touch()
            await events.until("session.idle")
        await apply(app, new_file("sub/n.txt", "n"))


async def test_a_member_sees_and_patches_their_root_alone(app: RunningApp, vera: RunningApp, tmp_path: Path) -> None:
    own, foreign = make_workspace(tmp_path.resolve() / "own"), make_workspace(tmp_path.resolve() / "foreign")
    (foreign / "a.txt").write_text("theirs\n")
    async with user(app, "anna", roots=[own]) as anna:
        for path in ("/vcs", "/vcs/status", "/vcs/diff", "/vcs/diff/raw"):
            await anna.get(path, params={"directory": str(foreign), "mode": "git"}, expect=403)
        await apply(anna, new_file("n", "n"), expect=403, directory=str(foreign))
        await apply(anna, new_file("n", "n"))
        assert await status(anna) == {"n": ("added", 1, 0)}
    await apply(vera, new_file("n", "n"), expect=403)
