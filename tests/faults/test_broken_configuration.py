"""A configuration file that is written wrongly while the server works, or while it is down: what runs goes on, what is asked anew
gets an error that names the file, and the log has no traceback for a typing error."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from killable import Servers
from turns import assert_finished, bash, say, task, tools

Figure = Callable[[str], None]

ASKED = {"permission": {"bash": "ask"}}
TURNS = 12


async def test_turns_with_subagents_outlive_a_configuration_that_is_broken_meanwhile(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path)
    delegate = [say("They look.", chunks=3, delay=0.05), task("one"), task("two")]
    servers.play([delegate, [say("In.", chunks=3, delay=0.02)], [say("In.")], [say("Out.")]] * TURNS)
    async with servers.start() as client:
        session = await client.session()
        for _ in range(TURNS):
            servers.configure({})
            prompt = asyncio.create_task(client.prompt(session))
            await client.condition("/session/status", bool)
            (servers.workspace / "opencode.json").write_text('{\n  "model": \n}')
            assert (await client.http.post(f"/session/{session}/message", json={"parts": []})).status_code == 500
            await prompt
        messages = await client.get(f"/session/{session}/message")
    assert_finished(messages)
    calls = tools(messages)
    failed = [call["state"]["error"] for call in calls if call["state"]["status"] == "error"]
    errors = [message["info"]["error"] for message in messages if "error" in message["info"]]
    figure(f"{len(calls)} subagents of {TURNS} turns while the configuration was broken: {len(failed)} failed")
    assert len(calls) == 2 * TURNS and failed == [] and errors == []
    assert "Traceback" not in servers.log and servers.log.count("opencode.json:3") == TURNS


async def test_a_server_that_starts_with_a_broken_configuration_answers_what_was_left_with_the_error(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.configure(ASKED)
    servers.play([[bash("ls")], [say("Done.")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, path="prompt_async")
        await client.condition("/permission", bool)
    (servers.workspace / "opencode.json").write_text("{")
    async with servers.start() as client:
        await client.idle()
        messages = await client.get(f"/session/{session}/message")
        assert_finished(messages)
        assert "opencode.json" in messages[-1]["info"]["error"]["data"]["message"]
        assert (await client.get("/permission")) == []
        servers.configure({})
        assert (await client.prompt(session))["info"].get("error") is None
    assert "Traceback" not in servers.log
    assert [line for line in servers.log.splitlines() if "opencode.json:1" in line] != []
