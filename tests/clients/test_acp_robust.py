"""`opensession acp` with editors that misbehave or are killed, and with a server that stops."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acp
import psutil
import pytest
from acp_editor import READS, Desk, are_gone, children_of
from forked import PROGRAM
from long_form import LONG
from polling import until
from real_server import RealServer, real_server


@pytest.fixture
def far(tmp_path: Path) -> Iterator[RealServer]:
    with real_server(tmp_path / "far") as server:
        yield server


async def restarted(server: RealServer) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


def status_in(told: dict[str, Any]) -> Any:
    """Of a tool call, in an update."""
    return told.get("params", {}).get("update", {}).get("status")


MALFORMED: list[tuple[bytes, int, Any]] = [
    (b"{no json", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b"[1]", -32600, None),
    (b"42", -32600, None),
    (b"{}", -32600, None),
    (b'{"id": [1], "method": "initialize"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 3, "method": 4}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 4, "method": "no/such"}', -32601, 4),
    (b'{"jsonrpc": "2.0", "id": "x", "method": "_own/method", "params": {}}', -32601, "x"),
    (b'{"jsonrpc": "2.0", "id": 5, "method": "session/new", "params": {}}', -32602, 5),
    (b'{"jsonrpc": "2.0", "id": 6, "method": "session/new", "params": [1]}', -32602, 6),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "session/new"}', -32602, 7),
]


async def test_what_is_malformed_is_answered_and_the_next_request_too(desk: Desk) -> None:
    passed_over = (b"", b'{"jsonrpc": "2.0", "method": "$/unknown"}', b'{"jsonrpc": "2.0", "id": 99, "result": {}}')
    async with desk.raw_editor() as editor:
        for number, (line, code, id_) in enumerate(MALFORMED, start=100):
            await editor.send(line, *passed_over)
            said = await editor.answer()
            assert (said["error"]["code"], said["id"]) == (code, id_), line
            assert (await editor.initialize(number))["protocolVersion"] == 1
    assert "Traceback" not in desk.log()


async def test_an_unknown_session_is_an_error_of_every_method(desk: Desk) -> None:
    async with desk.editor() as editor:
        agent, where, none = editor.agent, str(desk.directory), "ses_none"
        for asked in (
            agent.prompt(session_id=none, prompt=[acp.text_block("x")]),
            agent.set_session_mode(session_id=none, mode_id="plan"),
            agent.set_config_option(session_id=none, config_id="mode", value="plan"),
            agent.close_session(session_id=none),
            agent.load_session(session_id=none, cwd=where, mcp_servers=[]),
            agent.resume_session(session_id="../config", cwd=where),
            agent.fork_session(session_id=none, cwd=where),
        ):
            with pytest.raises(acp.RequestError) as refused:
                await asked
            assert refused.value.code == -32002, refused.value
        await agent.cancel(session_id=none)
        assert (await agent.list_sessions(cwd=where)).sessions == []


async def test_initialize_is_answered_at_once(desk: Desk) -> None:
    """By a program that starts as it does for everyone, within an editor's patience of 1.5 s. Its processor time is measured: the
    machine is shared, and it waits for nothing."""
    desk.command = [*PROGRAM, "acp"]
    async with desk.raw_editor() as editor:
        await editor.initialize()
        took = psutil.Process(editor.process.pid).cpu_times()
    assert took.user + took.system < 1.5, took


async def test_only_messages_stand_on_standard_output_and_who_can_be_asked_nothing_has_refused(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        session_id = await editor.prompt("run echo loud; echo err >&2")
        assert (await editor.answer_to(3))["result"]["stopReason"] == "end_turn"
        await editor.call("session/prompt", 4, sessionId=session_id, prompt=[{"type": "text", "text": "read /etc/hosts"}])
        refusal = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}}
        await editor.send(json.dumps({**refusal, "id": (await editor.asked())["id"]}).encode())
        assert (await editor.answer_to(4))["result"]["stopReason"] == "end_turn"


UNREADABLE: list[dict[str, Any]] = [
    {"result": {"outcome": {"outcome": "selected", "optionId": "allow"}}},
    {"result": {"outcome": {"outcome": "selected", "optionId": "7"}}},
    {"result": {"outcome": {"outcome": "selected"}}},
    {"result": {"outcome": {"outcome": "maybe"}}},
    {"result": None},
    {"error": "no"},
    {"error": {"code": "no"}},
]


@pytest.mark.parametrize("said", ["read /etc/hosts", "ask Which colour: red, blue"])
async def test_an_answer_that_cannot_be_read_refuses(desk: Desk, said: str) -> None:
    async with desk.raw_editor() as editor:
        for answer in UNREADABLE:
            await editor.prompt(said)
            await editor.send(json.dumps({"jsonrpc": "2.0", "id": (await editor.asked())["id"], **answer}).encode())
            status = status_in(await editor.until(lambda told: status_in(told) in ("completed", "failed")))
            assert (status, answer) == ("failed", answer)
            assert (await editor.answer_to(3))["result"]["stopReason"] == "end_turn"
    assert "Traceback" not in desk.log()


async def test_half_a_character_keeps_no_prompt_from_its_answer(desk: Desk) -> None:
    """JavaScript writes it as an escape of its own."""
    async with desk.raw_editor() as editor:
        session_id = await editor.prompt("long 1")
        await editor.answer_to(3)
        await editor.call("session/prompt", 4, sessionId=session_id, prompt=[{"type": "text", "text": "cut \ud83d"}])
        assert (await editor.answer_to(4))["result"]["stopReason"] == "end_turn"
        await editor.send(b"[" * 100_000)
        assert (await editor.answer())["error"]["code"] == -32700


async def test_meta_data_changes_no_request(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        await editor.initialize()
        await editor.call("session/new", 2, cwd=str(desk.directory), mcpServers=[], _meta={"cwd": "/etc", "self": 1})
        assert "sessionId" in (await editor.answer_to(2))["result"]


FLOOD = "yes | head -c 3000000"
"""Fills the pipe of an editor that does not read."""


@pytest.mark.parametrize(
    ("how", "prints"), [("closed", "true"), ("terminated", "true"), ("interrupted", "true"), ("killed", FLOOD), ("stuck", FLOOD)]
)
async def test_an_editor_that_goes_leaves_no_process_and_loses_nothing(desk: Desk, how: str, prints: str) -> None:
    """Killed, both of its pipes close; stuck, what it is told fills the pipe until the agent is told to stop."""
    said = f"run touch begun; {prints}; sleep 600"
    async with desk.raw_editor() as editor:
        session_id = await editor.prompt(said)
        await until((desk.directory / "begun").exists)
        below = children_of(editor.process.pid)
        assert below
        if how in ("closed", "killed"):
            editor.hang_up()
        else:
            editor.process.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGTERM)
        if how == "killed":
            editor.stop_reading()
        assert await editor.ended() == 0 or prints == FLOOD
        assert are_gone(below)
    assert "Traceback" not in desk.log() or prints == FLOOD
    async with desk.editor() as reader:
        await reader.load(desk.directory, session_id)
        (call,) = reader.calls().values()
        assert call["status"] == "failed" and reader.text("user_message_chunk") == said
        assert await reader.say("long 1") == "end_turn"


async def test_an_editor_that_goes_while_it_is_asked(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        await editor.prompt("read /etc/hosts")
        await editor.asked()
        editor.hang_up()
        assert await editor.ended() == 0
    assert "Traceback" not in desk.log()


async def test_an_editor_that_goes_while_a_turn_runs_and_a_session_is_made(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        await editor.prompt("run touch begun; sleep 600")
        await until((desk.directory / "begun").exists)
        await editor.call("session/new", 4, cwd=str(desk.directory), mcpServers=[])
        editor.hang_up()
        assert (await editor.answer_to(3))["result"]["stopReason"] == "cancelled"
        assert await editor.ended() == 0
    assert "Traceback" not in desk.log()


async def test_requests_before_the_end_of_the_input_are_answered(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        await editor.call("initialize", 1, protocolVersion=1)
        await editor.call("session/new", 2, cwd=str(desk.directory), mcpServers=[])
        editor.hang_up()
        assert "sessionId" in (await editor.answer_to(2))["result"]


async def test_a_server_that_comes_back_goes_on_with_the_session_and_is_lent_files_again(desk: Desk, far: RealServer) -> None:
    near = desk.beside(far.workspace, far.url)
    async with near.session(buffers={str(near.directory / "a.txt"): "not saved"}, offers=READS) as editor:

        async def reads() -> str:
            await editor.say("read a.txt")
            return str(list(editor.calls().values())[-1]["raw_output"])

        assert "not saved" in await reads()
        await restarted(far)
        assert await editor.say("long 2") == "end_turn"
        assert editor.text().rstrip().endswith("tok0    tok1"), "what comes whole, not in pieces, has no spaces at its end"
        async with asyncio.timeout(60):
            while "not saved" not in await reads():
                pass


@pytest.mark.skipif(not LONG, reason="the server is waited for half a minute: OPENSESSION_LONG=1")
async def test_a_server_that_is_killed_for_good_is_a_clear_error(desk: Desk, far: RealServer) -> None:
    async with desk.beside(far.workspace, far.url).session(offers=READS) as editor:
        turn = editor.begin("long 100000")
        await editor.until(editor.text)
        await asyncio.to_thread(far.kill)
        with pytest.raises(acp.RequestError, match="cannot be reached"):
            await turn
        with pytest.raises(acp.RequestError, match="cannot be reached"):
            await editor.say("long 1")
    assert editor.process.returncode == 0 and "Traceback" not in desk.log()


async def test_a_turn_that_waits_outlives_the_servers_restart(desk: Desk, far: RealServer) -> None:
    async with desk.beside(far.workspace, far.url).session(withholds=True) as editor:
        turn = editor.begin("read /etc/hosts")
        await editor.until(lambda: editor.asked)
        await restarted(far)
        editor.answers.set()
        assert await turn == "end_turn"
        (call,) = editor.calls().values()
        assert call["status"] == "completed"


async def test_an_attached_servers_turn_goes_on_without_the_editor(desk: Desk, far: RealServer) -> None:
    fifo = far.workspace / "gate.fifo"
    async with desk.beside(far.workspace, far.url).raw_editor() as editor:
        await editor.prompt(f"run mkfifo {fifo.name}; cat {fifo.name}; echo late > late.txt")
        await editor.until(lambda said: status_in(said) == "in_progress")
        editor.process.send_signal(signal.SIGTERM)
        await editor.ended()
    async with asyncio.timeout(60):
        await until(fifo.exists)
        await asyncio.to_thread(fifo.write_text, "go on\n")
        await until((far.workspace / "late.txt").exists)


@pytest.mark.parametrize(
    ("options", "database", "said"),
    [(("--attach", "http://127.0.0.1:9"), b"", "cannot be reached"), ((), b"no database" * 100, "could not start")],
    ids=["a server that is not there", "a database that cannot be used"],
)
async def test_what_keeps_it_from_starting_is_a_clear_error(
    desk: Desk, options: tuple[str, ...], database: bytes, said: str
) -> None:
    (desk.home / "data").mkdir()
    (desk.home / "data" / "opensession.db").write_bytes(database)
    desk.options = options
    async with desk.editor() as editor:
        with pytest.raises(acp.RequestError, match=said):
            await editor.new(desk.directory)


@pytest.mark.parametrize("options", [("--attach", "localhost:1"), ("--dir", "missing")])
async def test_wrong_usage_ends_with_2(desk: Desk, options: tuple[str, str]) -> None:
    desk.options = options
    async with desk.raw_editor() as editor:
        assert await editor.ended() == 2
    assert options[0] in desk.log() and not (desk.home / "data").exists()
