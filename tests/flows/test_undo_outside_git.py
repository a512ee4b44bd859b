"""Undo in a directory without git through whole turns, and what is said where there is none."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from git_files import files, git, put_file
from running_app import RunningApp, running_app
from turns import ALLOW, bash, play, revert, unrevert, write
from typer.testing import CliRunner

from app.cli import app as command
from app.project.snapshot import extent, repository

TOO_MANY = 60


def make_directory(base: Path) -> Path:
    directory = base / "plain"
    put_file(directory / "a.txt", "hello\nworld\n")
    return directory


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, workspace=make_directory(tmp_path)) as running:
        yield running


@pytest.fixture
async def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningApp]:
    """In a directory with more files than snapshots take."""
    monkeypatch.setattr(extent, "MAX_FILES", TOO_MANY - 10)
    directory = make_directory(tmp_path)
    for n in range(TOO_MANY):
        (directory / f"{n}.dat").write_text("")
    async with running_app(tmp_path, workspace=directory) as running:
        yield running


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(title="T", permission=ALLOW))["id"])


async def test_a_turn_is_reverted_and_restored(app: RunningApp, session: str) -> None:
    before = files(app.directory)
    new = write(app.directory / "sub" / "new.txt", "new\n")
    prompt = await play(app, session, bash("echo two > a.txt; mkdir d; echo x > d/c.txt"), new)
    after = files(app.directory)
    assert {diff["file"] for diff in await app.get(f"/session/{session}/diff")} == {"a.txt", "d/c.txt", "sub/new.txt"}
    assert (await app.get(f"/session/{session}"))["summary"]["files"] == 3

    preview = await revert(app, session, prompt, dryRun=True)
    assert files(app.directory) == after and "+hello" in preview["revert"]["diff"]
    done = await revert(app, session, prompt)
    assert files(app.directory) == before
    assert "notReverted" not in done["revert"] and done["revert"]["diff"] == preview["revert"]["diff"]
    assert "revert" not in await unrevert(app, session)
    assert files(app.directory) == after
    assert "noUndo" not in await app.get(f"/session/{session}")

    project = await app.get("/project/current")
    assert (project["id"], project["worktree"], project.get("vcs")) == ("global", "/", None)
    assert (await app.get("/path"))["worktree"] == "/"
    assert (await app.get("/vcs")).get("branch", "") == ""
    assert {path.name for path in app.directory.iterdir()} == {"a.txt", "d", "sub"}, "nothing is told or made of a project"


@pytest.mark.parametrize("rules", [".gitignore", ".ignore"])
async def test_what_was_ignored_before_a_turn_that_changed_the_rules_stays(app: RunningApp, session: str, rules: str) -> None:
    (app.directory / rules).write_text(".env\n")
    (app.directory / ".env").write_text("a person's\n")
    put_file(app.directory / "node_modules" / "x.js", "x\n")
    before = files(app.directory)
    prompt = await play(app, session, bash(f"rm {rules}; echo '!node_modules' > .gitignore; echo x > new"))
    await revert(app, session, prompt)
    assert files(app.directory) == before


async def test_edits_in_a_repository_inside_are_named(app: RunningApp, session: str) -> None:
    inner = app.directory / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    prompt = await play(app, session, write(inner / "f", "x"), bash("echo two > a.txt"))
    told = (await revert(app, session, prompt))["revert"]["notReverted"]
    assert [item["file"] for item in told] == ["inner/f"] and "another git repository" in told[0]["reason"]
    assert (inner / "f").read_text() == "x" and (app.directory / "a.txt").read_text() == "hello\nworld\n"


async def test_a_repository_that_is_made_in_a_turn_keeps_what_was_before_it(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; git init -q; echo three > b.txt"))
    await revert(app, session, prompt)
    assert files(app.directory) == {"a.txt": ("file", b"hello\nworld\n", False)}


async def test_a_crowded_directory_says_so_before_the_first_edit_and_a_revert_names_what_it_leaves(crowded: RunningApp) -> None:
    made = await crowded.create_session(title="T", permission=ALLOW)
    session = made["id"]
    assert "more than" in made["noUndo"]
    assert (await crowded.get(f"/session/{session}"))["noUndo"] == made["noUndo"]
    assert [listed["noUndo"] for listed in await crowded.get("/session")] == [made["noUndo"]]
    prompt = await play(crowded, session, write(crowded.directory / "b.txt", "x"), bash("echo two > a.txt"))
    preview = await revert(crowded, session, prompt, dryRun=True)
    assert "more than" in preview["noUndo"]
    for told in (preview, await revert(crowded, session, prompt)):
        assert [item["file"] for item in told["revert"]["notReverted"]] == ["b.txt", "bash"]
        assert all("no undo here: it has more than" in item["reason"] for item in told["revert"]["notReverted"])
    assert (crowded.directory / "a.txt").read_text() == "two\n"
    assert "revert" not in await unrevert(crowded, session)


async def test_snapshots_that_are_switched_off_are_told_too(tmp_path: Path) -> None:
    directory = make_directory(tmp_path)
    (directory / "opencode.json").write_text('{"snapshot": false}')
    async with running_app(tmp_path, workspace=directory) as app:
        assert "snapshot: false" in (await app.create_session())["noUndo"]


async def test_the_next_prompt_tells_that_there_is_undo_again(crowded: RunningApp) -> None:
    session = (await crowded.create_session(title="T", permission=ALLOW))["id"]
    (crowded.directory / ".ignore").write_text("*.dat\n")
    await crowded.post("/instance/dispose")
    async with crowded.events() as events:
        prompt = await play(crowded, session, bash("echo two > a.txt"))
        updated = await events.until("session.updated")
    assert "noUndo" not in updated.properties["info"]
    await revert(crowded, session, prompt)
    assert (crowded.directory / "a.txt").read_text() == "hello\nworld\n"


async def test_edits_from_before_it_grew_are_named(app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    monkeypatch.setattr(extent, "MAX_FILES", 5)
    for n in range(10):
        (app.directory / f"{n}.dat").write_text("")
    await app.post("/instance/dispose")
    told = await revert(app, session, prompt, dryRun=True)
    assert {item["file"] for item in told["revert"]["notReverted"]} == {"a.txt"}


@pytest.mark.parametrize(("count", "word"), [(1, "which is outside git"), (TOO_MANY, "none in")])
def test_doctor_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, word: str) -> None:
    monkeypatch.setattr(extent, "MAX_FILES", TOO_MANY - 10)
    directory = make_directory(tmp_path)
    for n in range(count):
        (directory / f"{n}.dat").write_text("")
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(tmp_path))
    monkeypatch.chdir(directory)
    result = CliRunner().invoke(command, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "undo: " in result.output and word in result.output


async def test_rules_that_never_end_hold_a_turn_up_once(app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_SMALL_TIMEOUT_SECONDS", 2)
    began = time.monotonic()
    await play(app, session, bash("mkdir sub; mkfifo sub/.gitignore sub/.ignore"), bash("echo two > a.txt"))
    await play(app, session, bash("echo three > a.txt"), bash("echo four > a.txt"))
    assert time.monotonic() - began < 15
