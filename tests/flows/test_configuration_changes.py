"""A turn runs with the configuration that it began with, whatever becomes of the files meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import plain, running
from running_app import RunningApp, running_app
from turns import bash, call, configured, pending, priced, reply, requests, say, states, talking, task, texts, tools, until

BROKEN = {
    "no JSON": "{",
    "a field of the wrong type": '{"model": 5}',
    "a file that is missing": '{"model": "{file:missing.txt}"}',
}


GREETING = """
def execute(args, context):
    return "Hello"

tool = {"description": "Greets", "args": {}, "execute": execute}
"""


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_subagents_run_with_the_configuration_of_their_caller(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = [[bash(f"echo '{broken}' > opencode.json")], [task("one"), task("two")], [say("In.")], [say("In.")], [say("Out.")]]
    async with talking(tmp_path, turns=[*turns, [say("Mended.")]]) as (app, session):
        assert texts(await app.prompt(session, "Go")) == ["Out."]
        refused = await app.prompt(session, "Again", expect=500)
        assert str(app.directory / "opencode.json") in refused["data"]["message"]
        (app.directory / "opencode.json").unlink()
        assert texts(await app.prompt(session, "Again")) == ["Mended."]
    assert tracebacks(caplog) == []


async def changed_while_a_turn_asks(app: RunningApp, config: dict[str, Any]) -> list[dict[str, Any]]:
    """What a turn stores whose first step asks for a permission, while the configuration becomes another one."""
    session = (await app.create_session())["id"]
    prompt = asyncio.create_task(app.prompt(session, "Go"))
    request = await pending(app)
    configured(app.directory.parent, config)
    await app.get("/config")
    await reply(app, request)
    await prompt
    return await app.messages(session)


async def test_a_turn_keeps_the_mcp_servers_that_it_began_with_and_they_are_closed_after_it(tmp_path: Path) -> None:
    config = {"permission": {"bash": "ask"}, "mcp": {"plain": plain(), "kept": plain()}}
    turns = [[bash("ls")], [call("plain_echo", text="still here")], [say()]]
    async with running_app(tmp_path, workspace=configured(tmp_path, config), turns=turns) as app:
        await app.get("/mcp")
        before = running(app.directory)
        messages = await changed_while_a_turn_asks(app, {"mcp": {"kept": plain(), "new": plain()}})
        assert [tool["state"].get("output") for tool in tools(messages)][1:] == ["still here"]
        assert {tool.id for tool in requests(app)[-1].tools if tool.id.endswith("_echo")} == {"plain_echo", "kept_echo"}
        assert set(await app.get("/mcp")) == {"kept", "new"}
        await until(lambda: len(running(app.directory)) == 2, "the server that is configured no more has ended")
        assert len(set(running(app.directory)) & set(before)) == 1, "the other is not connected anew"


async def test_a_turn_keeps_the_provider_that_it_began_with(tmp_path: Path) -> None:
    config = {"permission": {"bash": "ask"}, **priced()}
    async with running_app(tmp_path, workspace=configured(tmp_path, config), turns=[[bash("ls")], [task()], [say()]]) as app:
        messages = await changed_while_a_turn_asks(app, {})
        assert [message["info"].get("error") for message in messages] == [None] * 4
        assert {request.model.id for request in requests(app)} == {"big"}


async def test_a_turn_keeps_the_tools_that_it_began_with(tmp_path: Path) -> None:
    workspace = configured(tmp_path, {"permission": {"bash": "ask"}})
    (workspace / ".opencode" / "tool").mkdir(parents=True)
    (workspace / ".opencode" / "tool" / "greet.py").write_text(GREETING)
    turns = [[bash("ls")], [call("greet")], [say()]]
    async with talking(tmp_path, workspace=workspace, turns=turns, project_plugins=True) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        request = await pending(app)
        (workspace / ".opencode" / "tool" / "greet.py").unlink()
        await app.get("/config")
        await reply(app, request)
        await prompt
        assert (await states(app, session))[1]["output"] == "Hello"
        assert "greet" not in await app.get("/experimental/tool/ids")


async def test_a_typing_error_leaves_one_line_in_the_log_however_many_ask(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_app(tmp_path, workspace=configured(tmp_path, {})) as app:
        for text in ('{\n  "model": \n}', "{}", '{\n\n  "model": \n}'):
            (app.directory / "opencode.json").write_text(text)
            for _ in range(3):
                await app.call("GET", "/config", expect=200 if text == "{}" else 500)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition("opencode.json")[2][:3] for line in logged] == [":3:", ":4:"]
    assert tracebacks(caplog) == []
