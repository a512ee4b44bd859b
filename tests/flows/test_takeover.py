"""What a server leaves that dies while another of the same database runs is recovered by that one."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from running_app import running_app
from turns import assert_settled, bash, configured, pending, say, statuses, texts, tools, until

from app.session.lease import DEAD_AFTER_MS
from app.util import clock

ASK = {"permission": {"bash": {"*": "allow", "make *": "ask"}}}


@pytest.fixture(autouse=True)
def own_clock() -> Iterator[None]:
    yield
    clock.set_source()


def copy_database(data: Path, to: Path) -> None:
    """As a server leaves it that dies at this moment, on another machine: its lock is not to be seen."""
    to.mkdir()
    with closing(sqlite3.connect(data / "opensession.db")) as source, closing(sqlite3.connect(to / "opensession.db")) as target:
        source.backup(target)


def let_leases_become_stale() -> None:
    clock.set_source(lambda: time.time() + DEAD_AFTER_MS / 1000 + 1)


async def test_leases_that_become_stale_after_the_start_are_recovered(tmp_path: Path) -> None:
    turns = [[bash("echo shown; sleep 60")], [bash("make asked", "c1")]]
    workspace, copy = configured(tmp_path, ASK), tmp_path / "copy"
    async with running_app(tmp_path, workspace=workspace, turns=turns) as dying:
        cut, asking = [(await dying.create_session())["id"] for _ in range(2)]
        await dying.prompt_async(cut, "Go")
        while "shown" not in str(await dying.messages(cut)):
            await asyncio.sleep(0.01)
        await dying.prompt_async(asking, "Go")
        request = await pending(dying)
        await asyncio.to_thread(copy_database, dying.data_dir, copy)
    async with running_app(tmp_path, workspace=workspace, data_dir=copy, turns=[[say("Went on.")], [say("Anew.")]]) as app:
        assert "error" not in (await app.messages(cut))[-1]["info"]
        assert await statuses(app) == {cut: {"type": "busy"}, asking: {"type": "busy"}}, "on the server that may be alive"
        let_leases_become_stale()
        await until(lambda: app.services.runs.runner.is_running(asking), "the takeover")
        assert (await app.messages(cut))[-1]["info"]["error"]["name"] == "UnknownError"
        assert tools(await app.messages(cut))[0]["state"]["error"] == "[Tool execution was interrupted]"
        assert await app.get("/permission") == [request]
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await until(lambda: not app.services.runs.runner.is_running(asking), "the end of the turn")
        for session in (cut, asking):
            assert_settled(await app.messages(session))
        assert texts((await app.messages(asking))[-1]) == ["Went on."]
        assert texts(await app.prompt(cut, "Again")) == ["Anew."]


async def test_a_prompt_waits_until_its_session_is_recovered(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with running_app(tmp_path, turns=[[bash("echo shown; sleep 60")]]) as dying:
        session = (await dying.create_session())["id"]
        await dying.prompt_async(session, "Go")
        while "shown" not in str(await dying.messages(session)):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(copy_database, dying.data_dir, copy)
    async with running_app(tmp_path, data_dir=copy, turns=[[say("Anew.")]]) as app:
        let_leases_become_stale()
        assert texts(await app.prompt(session, "Again")) == ["Anew."]
        found = await app.messages(session)
        assert_settled(found)
        assert [message["info"].get("error", {}).get("name") for message in found] == [None, "UnknownError", None, None]


async def test_a_request_that_its_call_does_not_ask_again_is_withdrawn(tmp_path: Path) -> None:
    copy, workspace = tmp_path / "copy", configured(tmp_path, ASK)
    async with running_app(tmp_path, workspace=workspace, turns=[[bash("make asked", "c1")]]) as dying:
        session = (await dying.create_session())["id"]
        await dying.prompt_async(session, "Go")
        await pending(dying)
        await asyncio.to_thread(copy_database, dying.data_dir, copy)
    configured(tmp_path, {"permission": {"bash": "allow"}})
    let_leases_become_stale()
    async with running_app(tmp_path, workspace=workspace, data_dir=copy, turns=[[say("Went on.")]]) as app:
        await until(lambda: not app.services.runs.runner.is_running(session), "the end of the turn")
        assert texts((await app.messages(session))[-1]) == ["Went on."]
        assert await app.get("/permission") == []
