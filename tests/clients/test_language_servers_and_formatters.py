"""Real language servers and formatters: pyright, typescript-language-server and prettier of npm, ruff of PyPI."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, make_workspace, running_app
from turns import call, say, tools

State = dict[str, Any]


@pytest.fixture
def programs(node_modules: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of npm, whose programs are on PATH, with those of this Python."""
    packages = node_modules / "node_modules"
    folders = (packages / ".bin", Path(sys.executable).parent)
    monkeypatch.setenv("PATH", ":".join([*map(str, folders), os.environ["PATH"]]))
    return packages


@asynccontextmanager
async def working(base: Path, workspace: Path, *steps: State) -> AsyncIterator[RunningApp]:
    """A server whose model makes each call in a turn of its own."""
    turns = [turn for step in steps for turn in ([step], [say()])]
    async with running_app(base, workspace=workspace, turns=turns) as app:
        yield app


async def act(app: RunningApp, session: str) -> State:
    """The next call."""
    await app.prompt(session, "Go")
    state: State = tools(await app.messages(session))[-1]["state"]
    assert state["status"] == "completed", state
    return state


def seconds(state: State) -> float:
    return float(state["time"]["end"] - state["time"]["start"]) / 1000


def errors(state: State) -> list[str]:
    return [error["message"] for found in state["metadata"]["diagnostics"].values() for error in found]


PYTHON = ("a.py", "def add(a: int, b: int) -> int:\n    return a + b\n", 'add(1, "2")\n')
TYPESCRIPT = ("a.ts", "export function add(a: number, b: number): number {\n  return a + b\n}\n", 'add(1, "2")\n')


@pytest.mark.parametrize(("server", "file"), [("pyright", PYTHON), ("typescript", TYPESCRIPT)])
async def test_an_error_is_told_and_gone_when_it_is_mended(
    programs: Path, tmp_path: Path, server: str, file: tuple[str, str, str]
) -> None:
    name, good, bad = file
    workspace = make_workspace(tmp_path / "workspace")
    shutil.copytree(programs / "typescript", workspace / "node_modules" / "typescript")
    (workspace / "package.json").write_text("{}")
    write, again = (call("write", filePath=name, content=text) for text in (good, good + bad))
    mend = call("edit", filePath=name, oldString='"2"', newString="2")
    async with working(tmp_path, workspace, write, again, mend) as app:
        session = (await app.create_session())["id"]
        async with app.events() as events:
            await act(app, session)
            told = await events.until("lsp.client.diagnostics")
        assert told.properties == {"serverID": server, "path": str(workspace / name)}
        broken, mended = await act(app, session), await act(app, session)
        assert (await app.get("/lsp"))[0] == {"id": server, "name": server, "root": "", "status": "connected"}
        symbols = [symbol["name"] for symbol in await app.get("/find/symbol", params={"query": "add"})]
    place = f"ERROR [{good.count(chr(10)) + 1}:8] "
    assert seconds(broken) < 3 and f'\n<diagnostics file="{workspace / name}">\n{place}' in broken["output"], broken
    assert mended["output"] == "Edit applied successfully." and errors(broken) and not errors(mended)
    assert "add" in symbols


UGLY_PYTHON, TIDY_PYTHON = "x = { 'a':1 }\n", 'x = {"a": 1}\n'
UGLY_TYPESCRIPT, TIDY_TYPESCRIPT = "const x = { 'a':1 }", "const x = { a: 1 };\n"


@pytest.mark.parametrize(
    ("name", "ugly", "tidy"), [("a.py", UGLY_PYTHON, TIDY_PYTHON), ("a.ts", UGLY_TYPESCRIPT, TIDY_TYPESCRIPT)]
)
async def test_file_diff_and_later_edits_agree(programs: Path, tmp_path: Path, name: str, ugly: str, tidy: str) -> None:
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "ruff.toml").write_text("")
    (workspace / "package.json").write_text(json.dumps({"devDependencies": {"prettier": "3"}}))
    steps = [call("write", filePath=name, content=ugly)]
    steps += [call("edit", filePath=name, oldString=f"{number}", newString=f"   {number + 1}  ") for number in (1, 2)]
    async with working(tmp_path, workspace, *steps) as app:
        session = (await app.create_session())["id"]
        written = await act(app, session)
        assert (workspace / name).read_text() == tidy, written
        for number in (2, 3):
            edited = await act(app, session)
            text = tidy.replace("1", str(number))
            assert (workspace / name).read_text() == edited["metadata"]["filediff"]["after"] == text
            assert f"+{text}" in edited["metadata"]["diff"] and "formatErrors" not in edited["metadata"]
        await until_counted(app, session)
        (diff,) = await app.get(f"/session/{session}/diff")
        enabled = {one["name"] for one in await app.get("/formatter") if one["enabled"]}
    assert diff["file"] == name and diff["after"] == text
    assert {"ruff", "prettier"} <= enabled


async def until_counted(app: RunningApp, session: str) -> None:
    while not await app.get(f"/session/{session}/diff"):
        await asyncio.sleep(0.05)
