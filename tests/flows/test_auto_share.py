"""Sessions that are shared by themselves, through a whole turn with a subagent."""

import json
from pathlib import Path

import httpx2
import pytest
from running_app import RunningApp, make_workspace, running_app
from turns import say, talking, task

TURNS = [[task("Look around")], [say("I looked.")], [say("Done.")]]


async def turn(app: RunningApp) -> None:
    """A new session is shared before its first prompt, shows the answer to a visitor, and its subagent's is not shared."""
    async with app.events() as events:
        session = await app.create_session()
        link = httpx2.URL(session["share"]["url"]).path
        await app.prompt(session["id"], "Go")
        await events.until("session.idle", count=2)
    seen = await app.get(f"{link}/session")
    assert [part["text"] for part in seen["messages"][-1]["parts"] if part["type"] == "text"] == ["Done."]
    (child,) = await app.get(f"/session/{session['id']}/children")
    assert "share" not in child
    assert "share" in (await app.get(f"/session/{session['id']}"))


async def test_by_the_configuration(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "opencode.json").write_text(json.dumps({"share": "auto"}))
    async with running_app(tmp_path, turns=TURNS, workspace=workspace) as app:
        await turn(app)


async def test_by_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", "1")
    async with running_app(tmp_path, turns=TURNS) as app:
        await turn(app)


async def test_not_unless_asked(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        assert "share" not in await app.create_session()


async def test_a_session_with_a_parent_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", "1")
    async with talking(tmp_path) as (app, parent):
        assert "share" not in await app.create_session(parentID=parent)
