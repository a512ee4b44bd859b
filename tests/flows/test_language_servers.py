"""What language servers say of a file after an edit, and what one that is slow, silent, dead or hostile costs."""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import running_in
from running_app import RunningApp, running_app
from turns import call, configured, say, tools, until

FAKE = Path(__file__).parents[1] / "support" / "fake_language_server.py"


def fake(*words: str, **entry: Any) -> dict[str, Any]:
    return {"command": [sys.executable, str(FAKE), *words], "extensions": [".fake"], **entry}


@asynccontextmanager
async def serving(base: Path, *turns: Any, server: dict[str, Any], **options: Any) -> AsyncIterator[RunningApp]:
    workspace = configured(base, {"lsp": {"fake": server}})
    async with running_app(base, workspace=workspace, turns=[*([turn] for turn in turns), [say()]], **options) as app:
        yield app


async def states(app: RunningApp) -> list[dict[str, Any]]:
    """Of the calls of a session in which the model makes them one after the other."""
    session = await app.create_session()
    await app.prompt(session["id"], "Go")
    return [part["state"] for part in tools(await app.messages(session["id"]))]


def write(text: str, path: str = "a.fake") -> dict[str, Any]:
    return call("write", filePath=path, content=text)


def took(state: dict[str, Any]) -> float:
    return float(state["time"]["end"] - state["time"]["start"]) / 1000


async def test_errors_are_told_and_gone_when_they_are_mended(tmp_path: Path) -> None:
    edit = call("edit", filePath="a.fake", oldString="wrong", newString="right")
    async with serving(tmp_path, write("one\n wrong\n"), edit, server=fake()) as app:
        written, mended = await states(app)
        path = app.directory / "a.fake"
        listed = await app.get("/lsp")
    assert written["output"] == (
        "Wrote file successfully.\n\nLSP errors detected in this file, please fix:\n"
        f'<diagnostics file="{path}">\nERROR [2:1] this is wrong: wrong\n</diagnostics>'
    )
    (error,) = written["metadata"]["diagnostics"][str(path)]
    assert error["severity"] == 1 and error["range"]["start"] == {"line": 1, "character": 0}
    assert mended["output"] == "Edit applied successfully." and mended["metadata"]["diagnostics"] == {}
    assert listed == [{"id": "fake", "name": "fake", "root": ".", "status": "connected"}]
