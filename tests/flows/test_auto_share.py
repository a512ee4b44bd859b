"""Sessions that are shared by themselves, through a whole turn with a subagent."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from running_app import RunningApp, running_app
from turns import configured, say, task, texts


@pytest.mark.parametrize(("config", "flag"), [({"share": "auto"}, ""), ({}, "1")], ids=["by the configuration", "by the flag"])
async def test_a_session_is_shared_before_its_first_prompt_and_its_subagents_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], flag: str
) -> None:
    """A visitor is shown the answer."""
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", flag)
    turns = [[task("Look around")], [say("I looked.")], [say("Done.")]]
    async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, config)) as app:
        async with app.events() as events:
            session = await app.create_session()
            await app.prompt(session["id"], "Go")
            await events.until("session.idle", count=2)
        seen = await app.get(f"{httpx2.URL(session['share']['url']).path}/session")
        assert texts(seen["messages"][-1]) == ["Done."]
        (child,) = await app.get(f"/session/{session['id']}/children")
        assert "share" not in child and "share" in (await app.get(f"/session/{session['id']}"))
        assert "share" not in await app.create_session(parentID=session["id"])


async def test_not_unless_asked(app: RunningApp) -> None:
    assert "share" not in await app.create_session()
