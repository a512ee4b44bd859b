"""Files are formatted after a tool has written them: file, diff, record and later edits agree; what fails changes nothing."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import ALLOW, call, configured, priced, say, states_after

from app.workspace import formatters

FAKE = Path(__file__).parents[1] / "support" / "fake_formatter.py"


def fake(mode: str, *words: str, **entry: Any) -> dict[str, Any]:
    return {"command": [sys.executable, str(FAKE), mode, *words, "$FILE"], "extensions": [".txt", ".md"], **entry}


@asynccontextmanager
async def formatting(base: Path, *calls: Any, of: Any, **options: Any) -> AsyncIterator[RunningApp]:
    config = {"formatter": of, **options.pop("config", {})}
    workspace = configured(base, config)
    async with running_app(base, workspace=workspace, turns=[*([step] for step in calls), [say()]], **options) as app:
        yield app


def write(text: str, path: str = "b.txt") -> dict[str, Any]:
    return call("write", filePath=path, content=text)


def edit(old: str, new: str, path: str = "b.txt") -> dict[str, Any]:
    return call("edit", filePath=path, oldString=old, newString=new)


async def test_what_is_told_and_stored_is_the_formatted_file(tmp_path: Path) -> None:
    calls = [write("one\ntwo\n"), edit("ONE", "three"), edit("THREE", "four")]
    async with formatting(tmp_path, *calls, of={"fake": fake("upper")}) as app:
        written, first, second = await states_after(app)
        assert (app.directory / "b.txt").read_text() == "FOUR\nTWO\n"
        (session,) = await app.get("/session")
        (diff,) = await app.get(f"/session/{session['id']}/diff")
    assert written["status"] == first["status"] == second["status"] == "completed", (first, second)
    assert first["metadata"]["filediff"]["after"] == "THREE\nTWO\n" and "+THREE" in first["metadata"]["diff"]
    assert "three" not in first["metadata"]["diff"] and "formatErrors" not in first["metadata"]
    assert diff["after"] == "FOUR\nTWO\n"


@pytest.mark.parametrize("mode", ["fail", "delete", "link", "hang"])
async def test_one_that_fails_changes_nothing_and_is_named(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(formatters, "FORMAT_SECONDS", 1.0)
    (tmp_path / "beside").write_text("another's")
    of = {"bad": fake(mode, str(tmp_path / "beside")), "good": fake("sign", environment={"SIGNED": "signed"})}
    async with formatting(tmp_path, edit("", "one\n"), edit("one", "two"), edit("two", "two\n"), of=of) as app:
        path = app.directory / "b.txt"
        path.touch()
        path.chmod(0o750)
        written, *others = await states_after(app)
        assert path.read_text() == "two\n\nsigned\nsigned\nsigned\n" and not path.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o750
    for state in (written, *others):
        assert state["status"] == "completed" and list(state["metadata"]["formatErrors"]) == ["bad"]
        assert "\x1b" not in str(state["metadata"]) and "half" not in str(state["metadata"])
    if mode == "hang":
        took = [state["time"]["end"] - state["time"]["start"] for state in (written, *others)]
        assert took[0] > 900 and all(ms < 900 for ms in took[1:]), took
        assert all("left out" in state["metadata"]["formatErrors"]["bad"] for state in others), "for a while"
    assert (tmp_path / "beside").read_text() == "another's"
    assert len([record for record in caplog.records if "formatter bad" in record.message]) == 1


async def test_one_that_leaves_a_folder_is_an_error_of_the_call(tmp_path: Path) -> None:
    async with formatting(tmp_path, write("one\n"), of={"bad": fake("folder")}) as app:
        (state,) = await states_after(app)
    assert state["status"] == "error" and "directory" in state["error"]


async def test_a_patch_and_several_edits_are_formatted(tmp_path: Path) -> None:
    patch = (
        "*** Begin Patch\n*** Add File: b.txt\n+one\n*** Add File: c.md\n+two\n*** Add File: d.py\n+three\n"
        "*** Update File: a.txt\n*** Move to: sub/e.txt\n@@\n-hello\n+hullo\n*** End Patch"
    )
    patching, model = call("apply_patch", patchText=patch), priced(id="gpt-5")
    async with formatting(tmp_path, patching, of={"fake": fake("upper")}, config=model) as app:
        (state,) = await states_after(app)
        found = {name: (app.directory / name).read_text() for name in ("b.txt", "c.md", "d.py", "sub/e.txt")}
    assert found == {"b.txt": "ONE\n", "c.md": "TWO\n", "d.py": "three\n", "sub/e.txt": "HULLO\nWORLD\n"}
    assert [file["after"] for file in state["metadata"]["files"]] == ["ONE\n", "TWO\n", "three\n", "HULLO\nWORLD\n"]
    assert "+HULLO" in state["metadata"]["diff"] and "+hullo" not in state["metadata"]["diff"]
    edits = [{"oldString": "ONE", "newString": "six"}, {"oldString": "six", "newString": "seven"}]
    base = tmp_path / "several"
    calls = [write("one\n"), call("multiedit", filePath="b.txt", edits=edits)]
    async with formatting(base, *calls, of={"fake": fake("upper")}) as app:
        _, edited = await states_after(app)
        assert (app.directory / "b.txt").read_text() == "SEVEN\n"
    assert edited["metadata"]["filediff"]["after"] == "SEVEN\n"


@pytest.mark.parametrize("choice", [False, {"ruff": {"disabled": True}}, {"ruff": {}}, None])
async def test_the_well_known_ones_run_where_the_project_has_them(tmp_path: Path, choice: Any) -> None:
    workspace = configured(tmp_path, {"formatter": choice} if choice is not None else {})
    (workspace / "ruff.toml").write_text("")
    ruff = workspace / ".venv" / "bin" / "ruff"
    ruff.parent.mkdir(parents=True)
    shutil.copy(FAKE, workspace / "fake.py")
    ruff.write_text(f'#!/bin/sh\n[ "$1" = format ] && exec {sys.executable} {workspace}/fake.py upper "$2"\n')
    ruff.chmod(0o755)
    async with running_app(tmp_path, workspace=workspace) as app:
        await states_after(app, [write("x = 1\n", "m.py")], [say()])
        text = (app.directory / "m.py").read_text()
        listed = {one["name"]: one for one in await app.get("/formatter")}
    runs = choice is None or choice == {"ruff": {}}
    assert text == ("X = 1\n" if runs else "x = 1\n")
    assert ("ruff" in listed and listed["ruff"]["enabled"]) is runs
    if choice is not False:
        assert listed["prettier"].pop("extensions") and listed["prettier"] == {"name": "prettier", "enabled": False}


@pytest.mark.parametrize("has_git", [True, False])
async def test_what_lies_outside_of_the_project_is_left_alone_also_outside_git(tmp_path: Path, has_git: bool) -> None:
    outside = tmp_path / "beside" / "x.txt"
    outside.parent.mkdir()
    outside.write_text("old")
    workspace = configured(tmp_path, {})
    if not has_git:
        shutil.rmtree(workspace / ".git")
    (workspace / "link.txt").symlink_to(outside)
    within = write("x"), edit("X", "y"), write("x = 1\n", "m.py")
    calls = [edit("", "new", str(outside)), edit("", "new", "link.txt"), *within]
    async with formatting(tmp_path, *calls, of={"fake": fake("upper")}) as app:
        found = await states_after(app, permission=ALLOW)
    assert [state["status"] for state in found] == ["completed"] * 5, found
    assert outside.read_text() == "new" and (workspace / "b.txt").read_text() == "Y"


@needs_sandbox
@pytest.mark.parametrize("place", ["outside", "workspace/inside"])
async def test_a_formatter_reaches_the_project_alone(tmp_path: Path, place: str) -> None:
    of = {"fake": fake("outside", str(tmp_path / place)), "upper": fake("upper")}
    async with formatting(tmp_path, write("x", "sub/deep/b.txt"), of=of, sandbox="require") as app:
        (state,) = await states_after(app)
        assert (app.directory / "sub/deep/b.txt").read_text() == "X", state["metadata"]
    assert (tmp_path / place).exists() is (place != "outside")


@pytest.mark.skipif(not shutil.which("ruff", path=str(Path(sys.executable).parent)), reason="ruff is not installed")
async def test_ruff_itself_formats(tmp_path: Path) -> None:
    ruff = str(Path(sys.executable).parent / "ruff")
    of = {"ruff": {"command": [ruff, "format", "$FILE"], "extensions": [".py"]}}
    calls = [write("x=[1,2]\n", "m.py"), edit("x = [1, 2]", "x={ }", "m.py"), write("x = (\n", "m.py")]
    async with formatting(tmp_path, *calls, of=of) as app:
        _, edited, broken = await states_after(app)
        assert (app.directory / "m.py").read_text() == "x = (\n"
    assert edited["metadata"]["filediff"]["after"] == "x = {}\n"
    assert "exit code" in broken["metadata"]["formatErrors"]["ruff"]
