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
from turns import call, configured, say, tools

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


async def states(app: RunningApp, **session: Any) -> list[dict[str, Any]]:
    created = await app.create_session(**session)
    await app.prompt(created["id"], "Go")
    return [part["state"] for part in tools(await app.messages(created["id"]))]


def write(text: str, path: str = "b.txt") -> dict[str, Any]:
    return call("write", filePath=path, content=text)


def edit(old: str, new: str, path: str = "b.txt") -> dict[str, Any]:
    return call("edit", filePath=path, oldString=old, newString=new)


async def test_what_is_told_and_stored_is_the_formatted_file(tmp_path: Path) -> None:
    calls = [write("one\ntwo\n"), edit("ONE", "three"), edit("THREE", "four")]
    async with formatting(tmp_path, *calls, of={"fake": fake("upper")}) as app:
        written, first, second = await states(app)
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
    async with formatting(tmp_path, edit("", "one\n"), edit("one", "two"), of=of) as app:
        path = app.directory / "b.txt"
        path.touch()
        path.chmod(0o750)
        written, edited = await states(app)
        assert path.read_text() == "two\nsigned\nsigned\n" and not path.is_symlink()
        assert path.stat().st_mode & 0o777 == 0o750
    assert written["status"] == edited["status"] == "completed"
    assert list(written["metadata"]["formatErrors"]) == list(edited["metadata"]["formatErrors"]) == ["bad"]
    assert "\x1b" not in str(written["metadata"]) and "half" not in str(edited["metadata"])
    assert (tmp_path / "beside").read_text() == "another's"
    assert len([record for record in caplog.records if "formatter bad" in record.message]) == 1


async def test_one_that_leaves_a_folder_is_an_error_of_the_call(tmp_path: Path) -> None:
    async with formatting(tmp_path, write("one\n"), of={"bad": fake("folder")}) as app:
        (state,) = await states(app)
    assert state["status"] == "error" and "directory" in state["error"]


async def test_one_that_does_not_end_is_left_out_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatters, "FORMAT_SECONDS", 1.0)
    calls = [write("one\n"), *(edit("", f"{number}\n") for number in range(3))]
    async with formatting(tmp_path, *calls, of={"bad": fake("hang")}) as app:
        first, *others = await states(app)
    took = [state["time"]["end"] - state["time"]["start"] for state in (first, *others)]
    assert took[0] > 900 and all(ms < 900 for ms in took[1:]), took
    assert all("left out" in state["metadata"]["formatErrors"]["bad"] for state in others)


async def test_a_patch_and_several_edits_are_formatted(tmp_path: Path) -> None:
    patch = (
        "*** Begin Patch\n*** Add File: b.txt\n+one\n*** Add File: c.md\n+two\n*** Add File: d.py\n+three\n"
        "*** Update File: a.txt\n*** Move to: sub/e.txt\n@@\n-hello\n+hullo\n*** End Patch"
    )
    model = {"model": "acme/gpt-5", "provider": {"acme": {"npm": "scripted", "models": {"gpt-5": {}}}}}
    async with formatting(tmp_path, call("apply_patch", patchText=patch), of={"fake": fake("upper")}, config=model) as app:
        (state,) = await states(app)
        found = {name: (app.directory / name).read_text() for name in ("b.txt", "c.md", "d.py", "sub/e.txt")}
    assert found == {"b.txt": "ONE\n", "c.md": "TWO\n", "d.py": "three\n", "sub/e.txt": "HULLO\nWORLD\n"}
    assert [file["after"] for file in state["metadata"]["files"]] == ["ONE\n", "TWO\n", "three\n", "HULLO\nWORLD\n"]
    assert "+HULLO" in state["metadata"]["diff"] and "+hullo" not in state["metadata"]["diff"]
    edits = [{"oldString": "ONE", "newString": "six"}, {"oldString": "six", "newString": "seven"}]
    base = tmp_path / "several"
    calls = [write("one\n"), call("multiedit", filePath="b.txt", edits=edits)]
    async with formatting(base, *calls, of={"fake": fake("upper")}) as app:
        _, edited = await states(app)
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
    async with running_app(tmp_path, workspace=workspace, turns=[[write("x = 1\n", "m.py")], [say()]]) as app:
        await states(app)
        text = (app.directory / "m.py").read_text()
        listed = {one["name"]: one for one in await app.get("/formatter")}
    runs = choice is None or choice == {"ruff": {}}
    assert text == ("X = 1\n" if runs else "x = 1\n")
    assert ("ruff" in listed and listed["ruff"]["enabled"]) is runs
    assert choice is False or listed["prettier"] == {
        "name": "prettier",
        "extensions": listed["prettier"]["extensions"],
        "enabled": False,
    }


async def test_what_lies_outside_of_the_project_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "x.txt").write_text("old")
    calls = [edit("", "new", str(tmp_path / "beside" / "x.txt")), edit("", "new", "link.txt")]
    async with formatting(tmp_path, *calls, of={"fake": fake("upper")}) as app:
        (app.directory / "link.txt").symlink_to(tmp_path / "beside" / "x.txt")
        allow = [{"permission": "external_directory", "pattern": "*", "action": "allow"}]
        found = await states(app, permission=allow)
    assert [state["status"] for state in found] == ["completed"] * 2
    assert (tmp_path / "beside" / "x.txt").read_text() == "new"


async def test_a_directory_outside_git_is_formatted_too(tmp_path: Path) -> None:
    shutil.rmtree(configured(tmp_path, {}) / ".git")
    async with formatting(tmp_path, write("x"), edit("X", "y"), write("x = 1\n", "m.py"), of={"fake": fake("upper")}) as app:
        found = await states(app)
        assert (app.directory / "b.txt").read_text() == "Y"
    assert [state["status"] for state in found] == ["completed"] * 3, found


@needs_sandbox
@pytest.mark.parametrize("place", ["outside", "workspace/inside"])
async def test_a_formatter_reaches_the_project_alone(tmp_path: Path, place: str) -> None:
    of = {"fake": fake("outside", str(tmp_path / place)), "upper": fake("upper")}
    async with formatting(tmp_path, write("x", "sub/deep/b.txt"), of=of, sandbox="require") as app:
        (state,) = await states(app)
        assert (app.directory / "sub/deep/b.txt").read_text() == "X", state["metadata"]
    assert (tmp_path / place).exists() is (place != "outside")


@pytest.mark.skipif(not shutil.which("ruff", path=str(Path(sys.executable).parent)), reason="ruff is not installed")
async def test_ruff_itself_formats(tmp_path: Path) -> None:
    ruff = str(Path(sys.executable).parent / "ruff")
    of = {"ruff": {"command": [ruff, "format", "$FILE"], "extensions": [".py"]}}
    calls = [write("x=[1,2]\n", "m.py"), edit("x = [1, 2]", "x={ }", "m.py"), write("x = (\n", "m.py")]
    async with formatting(tmp_path, *calls, of=of) as app:
        _, edited, broken = await states(app)
        assert (app.directory / "m.py").read_text() == "x = (\n"
    assert edited["metadata"]["filediff"]["after"] == "x = {}\n"
    assert "exit code" in broken["metadata"]["formatErrors"]["ruff"]
