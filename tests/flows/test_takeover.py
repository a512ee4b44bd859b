"""What a server leaves that dies while another of the same database runs is recovered by that one."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import turns
from copied_database import copy_database
from running_app import RunningApp, running_app
from turns import assert_finished, bash, call, configured, pending, reply, requests, say, texts, until_done, until_shown

from app.record.repositories import work_rows
from app.sessions.lease import DEAD_AFTER_MS
from app.sessions.session_tx import SessionTx
from app.turn.runs import recovery
from app.util import clock

ASK = {"permission": {"bash": {"*": "allow", "make *": "ask"}}}


def let_leases_become_stale() -> None:
    clock.set_source(lambda: time.time() + DEAD_AFTER_MS / 1000 + 1)


async def test_leases_that_become_stale_after_the_start_are_recovered(tmp_path: Path) -> None:
    steps = [[bash("echo shown; sleep 60")], [bash("make asked", "c1")]]
    workspace, copy = configured(tmp_path, ASK), tmp_path / "copy"
    async with running_app(tmp_path, workspace=workspace, turns=steps) as dying:
        cut, asking = [(await dying.create_session())["id"] for _ in range(2)]
        await dying.prompt_async(cut, "Go")
        await until_shown(dying, cut, "shown")
        await dying.prompt_async(asking, "Go")
        request = await pending(dying)
        await asyncio.to_thread(copy_database, dying.data_dir, copy)
    async with running_app(tmp_path, workspace=workspace, data_dir=copy, turns=[[say("Anew.")], [say("Went on.")]]) as app:
        assert "error" not in (await app.messages(cut))[-1]["info"]
        assert await turns.statuses(app) == {cut: {"type": "busy"}, asking: {"type": "busy"}}, "on the server that may be alive"
        let_leases_become_stale()
        await turns.until(lambda: app.services.live.is_running(asking), "the takeover")
        await until_done(app, cut)
        assert texts((await app.messages(cut))[-1]) == ["Anew."]
        assert (await turns.states(app, cut))[0]["error"] == "[Tool execution was interrupted]"
        assert await app.get("/permission") == [request]
        await reply(app, request)
        await until_done(app, asking)
        for session in (cut, asking):
            assert_finished(await app.messages(session))
        assert texts((await app.messages(asking))[-1]) == ["Went on."]


async def test_a_call_that_asks_again_knows_which_instructions_the_model_has(tmp_path: Path) -> None:
    workspace, copy = configured(tmp_path, {"permission": {"read": {"*": "allow", "*asked.py": "ask"}}}), tmp_path / "copy"
    (workspace / "lib").mkdir()
    (workspace / "lib" / "AGENTS.md").write_text("Tabs here.")
    for name in ("plain.py", "asked.py"):
        (workspace / "lib" / name).write_text("x = 1\n")
    steps = [[call("read", filePath="lib/plain.py")], [call("read", filePath="lib/asked.py")]]
    async with running_app(tmp_path, workspace=workspace, turns=steps) as dying:
        session = (await dying.create_session())["id"]
        await dying.prompt_async(session, "Go")
        request = await pending(dying)
        await asyncio.to_thread(copy_database, dying.data_dir, copy)
    let_leases_become_stale()
    async with running_app(tmp_path, workspace=workspace, data_dir=copy, turns=[[say("Read.")]]) as app:
        await pending(app)
        await reply(app, request)
        await until_done(app, session)
        first, second = [state["output"] for state in await turns.states(app, session)]
    assert "Tabs here." in first and "x = 1" in second and "Tabs here." not in second


async def cut_off(
    base: Path,
    steps: list[list[turns.Step]],
    shown: str,
    *,
    child: bool = False,
    kept: bool = False,
    queued: bool = False,
) -> tuple[Path, str]:
    """A session whose server dies when the model's answer shows `shown`, and the data directory that is left. `kept`: the prompt
    wanted no answer when it was sent first. `queued`: another one waits for a turn of its own."""
    left = base / "left"
    async with running_app(base, turns=steps) as dying:
        session = (await dying.create_session())["id"]
        if child:
            session = (await dying.post("/session", {"parentID": session}))["id"]
        if kept:
            await dying.prompt(session, "Go", messageID="msg_go", noReply=True)
        await dying.prompt_async(session, "Go", messageID="msg_go")
        await until_shown(dying, session, shown)
        if queued:
            await dying.prompt_async(session, "Then", whenBusy="queue")
        await asyncio.to_thread(copy_database, dying.data_dir, left)
    let_leases_become_stale()
    return left, session


async def ended(app: RunningApp, session: str) -> list[turns.Message]:
    await until_done(app, session)
    found = await app.messages(session)
    assert_finished(found)
    assert await turns.statuses(app) == {}
    return found


CHILD: dict[str, Any] = {}
LONG_TURN = [[bash("echo ran >> log.txt; echo sh''own; sleep 60")]]


async def test_a_turn_goes_on_in_a_new_step_without_running_its_tool_again(tmp_path: Path) -> None:
    """The files that the tool changed can be reverted."""
    left, session = await cut_off(tmp_path, LONG_TURN, "shown")
    may_end = asyncio.Event()
    async with running_app(tmp_path, data_dir=left, turns=[[say("Went on."), {"wait": may_end}]]) as app:
        (taken,) = await app.services.store.query(work_rows.leases)
        assert taken.session_id == session and taken.takeovers == 1
        may_end.set()
        prompt, interrupted, answer = await ended(app, session)
        free = await app.services.store.query(work_rows.lease_of, session)
        assert free is not None and free.takeovers == 0, "takeovers are counted until the run ends"
        (request,) = requests(app)
        assert (app.directory / "log.txt").read_text().split() == ["ran"]
        await app.post(f"/session/{session}/revert", {"messageID": prompt["info"]["id"]})
        assert not (app.directory / "log.txt").exists()
    assert texts(answer) == ["Went on."] and answer["info"]["parentID"] == prompt["info"]["id"]
    assert interrupted["info"]["finish"] == "tool-calls" and "error" not in interrupted["info"]
    assert "step-finish" in [part["type"] for part in interrupted["parts"]]
    assert "[Tool execution was interrupted]" in str(request.messages)


@pytest.mark.parametrize("kept", [False, True])
async def test_half_a_text_stays_and_the_model_is_asked_again(tmp_path: Path, kept: bool) -> None:
    left, session = await cut_off(tmp_path, [[say("Half a text. And more.", chunks=20, delay=0.2)]], "Half", kept=kept)
    async with running_app(tmp_path, data_dir=left, turns=[[say("A whole one.")]]) as app:
        _, interrupted, answer = await ended(app, session)
    assert texts(interrupted)[0].startswith("Ha") and interrupted["info"]["finish"] == "unknown"
    assert texts(answer) == ["A whole one."]


async def test_a_prompt_behind_an_interrupted_answer_is_answered_with_it(tmp_path: Path) -> None:
    left, session = await cut_off(tmp_path, LONG_TURN, "shown")
    async with running_app(tmp_path, data_dir=left, turns=[[say("Anew.")], [say("Both.")]]) as app:
        await app.prompt(session, "Again")
        found = await ended(app, session)
    assert not [message for message in found if "error" in message["info"]]
    assert texts(found[-1]) in (["Anew."], ["Both."])


async def test_a_prompt_that_is_queued_behind_an_interrupted_turn_gets_its_own(tmp_path: Path) -> None:
    left, session = await cut_off(tmp_path, LONG_TURN, "shown", queued=True)
    async with running_app(tmp_path, data_dir=left, turns=[[say("Anew.")], [say("Then.")]]) as app:
        await turns.until_stored(app, session, 5)
        found = await ended(app, session)
    assert [texts(message) for message in found] == [["Go"], [], ["Anew."], ["Then"], ["Then."]]


async def test_a_summary_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    left = tmp_path / "left"
    async with running_app(tmp_path, turns=[[say("Hello.")], [say("Half a summary of it.", chunks=10, delay=0.5)]]) as dying:
        session = (await dying.create_session())["id"]
        await dying.prompt(session, "Hi")
        model = turns.infos(await dying.messages(session))[0]["model"]
        summing = asyncio.create_task(turns.summarize(dying, session, **model))
        await until_shown(dying, session, "Half")
        await asyncio.to_thread(copy_database, dying.data_dir, left)
        summing.cancel()
    let_leases_become_stale()
    async with running_app(tmp_path, data_dir=left, turns=[[say("The summary.")]]) as app:
        found = await ended(app, session)
        (request,) = requests(app)
    assert texts(found[-1]) == ["The summary."] and found[-1]["info"]["summary"]
    assert "Half" not in str(found) and "Half" not in str(request.messages)


@pytest.mark.parametrize(
    ("leases", "settings"),
    [
        ("takeovers = 2", {}),
        ("heartbeat = heartbeat - 600000", {}),
        ("takeovers = 0", {"interrupted": "settle"}),
        ("takeovers = 0", CHILD),
    ],
    ids=["the third time", "after ten minutes", "by the setting", "a subagent's, for which nobody waits"],
)
async def test_a_turn_that_does_not_go_on_ends_with_an_error(tmp_path: Path, leases: str, settings: dict[str, Any]) -> None:
    left, session = await cut_off(tmp_path, LONG_TURN, "shown", child=settings is CHILD)
    with closing(sqlite3.connect(left / "opensession.db")) as database, database:
        database.execute(f"UPDATE run_lease SET {leases}")
    async with running_app(tmp_path, data_dir=left, turns=[[say("Anew.")]], **settings) as app:
        _, interrupted = await ended(app, session)
        assert interrupted["info"]["error"]["name"] == "UnknownError"
        with closing(sqlite3.connect(app.data_dir / "opensession.db")) as database:
            told = "SELECT type FROM event_journal WHERE session_id = ? ORDER BY seq DESC LIMIT 1"
            assert database.execute(told, [session]).fetchone() == ("session.idle",), "whose clients were told that it is busy"
        assert texts(await app.prompt(session, "Again")) == ["Anew."]


async def test_a_prompt_whose_server_died_before_it_ran_is_begun_by_another(tmp_path: Path) -> None:
    async with turns.talking(tmp_path, turns=[[say("Begun.")]]) as (app, session):
        await app.prompt(session, "Hi", noReply=True)
        with closing(sqlite3.connect(app.data_dir / "opensession.db")) as database, database:
            database.execute("UPDATE message SET open = 1")
        await turns.until_stored(app, session, 2)
        assert texts((await ended(app, session))[-1]) == ["Begun."]


async def left_unfinished(app: RunningApp, **changed: Any) -> tuple[str, Path]:
    """A session whose revert a killed server has left, and the file that it was to delete."""
    session, file = (await app.create_session(permission=turns.ALLOW, title="T"))["id"], app.directory / "n.txt"
    await turns.revert(app, session, await turns.play(app, session, turns.write("n.txt", "new\n")))
    assert not file.exists()

    def leave(tx: SessionTx) -> None:
        found = tx.session()
        assert found.revert is not None
        left = found.revert.model_copy(update={"unfinished": True, **changed})
        tx.put_unannounced(found.model_copy(update={"revert": left}))

    await app.services.store.write(session, str(app.directory), leave)
    return session, file


@pytest.mark.parametrize("meanwhile", ["nothing", "prompt", "shell"])
async def test_a_revert_that_is_left_unfinished_is_undone_before_anything_else(tmp_path: Path, meanwhile: str) -> None:
    """Also one that was left after its session was recovered."""
    async with running_app(tmp_path) as app:
        session, file = await left_unfinished(app)
        if meanwhile == "prompt":
            await app.prompt(session, "Hi")
            assert file.exists() and len(await app.messages(session)) == 5
        if meanwhile == "shell":
            await app.post(f"/session/{session}/shell", {"agent": "build", "command": "true"}, expect=409)
        await turns.until(file.exists, "the undoing")
        async with asyncio.timeout(20):
            while "revert" in await app.get(f"/session/{session}"):
                await asyncio.sleep(0.1)


async def test_an_unfinished_revert_that_cannot_be_undone_keeps_no_prompt_out(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session, _ = await left_unfinished(app, message_id="msg_gone")
        assert "error" not in (await app.prompt(session, "Hi"))["info"]


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
        await until_done(app, session)
        assert texts((await app.messages(session))[-1]) == ["Went on."]
        assert await app.get("/permission") == []


async def test_a_session_whose_directory_cannot_be_opened_after_a_while_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a volume that hangs, then fails."""
    copy, may_fail = tmp_path / "copy", asyncio.Event()
    async with running_app(tmp_path, turns=[[bash("echo shown; sleep 60")]]) as dying:
        session = (await dying.create_session(permission=turns.ALLOW))["id"]
        await dying.prompt_async(session, "Go")
        await until_shown(dying, session, "shown")
        await asyncio.to_thread(copy_database, dying.data_dir, copy)

    async def fails(*_: object) -> None:
        await may_fail.wait()
        raise OSError("the volume is away")

    async with running_app(tmp_path, workspace=dying.directory, data_dir=copy) as app:
        monkeypatch.setattr(recovery, "OPENING_SECONDS", 0.05)
        monkeypatch.setattr(app.services.instances, "get", fails)
        let_leases_become_stale()
        await turns.until(lambda: app.services.leases.held(session), "the takeover")
        await asyncio.sleep(0.5)  # the recovery goes on without it
        may_fail.set()

        async def is_free() -> bool:
            return not await app.services.store.query(work_rows.held_among, [session])

        await turns.until(is_free, "its lease's end")
        assert "volume is away" in str((await app.messages(session))[-1]["info"]["error"])
