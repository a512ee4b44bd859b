"""Turns with the tools, prompts and resources of MCP servers."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_servers import from_pypi, plain, running
from running_app import RunningApp, text_part
from sse_reader import Received
from turns import assert_finished, call, configured, parts, pending, reply, requests, say, states, statuses, talking, texts, until

from app.providers.base import FileBlock, ToolResultBlock, UserTurn
from app.tools.mcp import servers


@asynccontextmanager
async def with_server(
    base: Path, *turns: Any, server: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[tuple[RunningApp, str]]:
    workspace = configured(base, {"mcp": {"plain": server or plain()}, **config})
    async with talking(base, workspace=workspace, turns=turns) as opened:
        yield opened
    assert not running(workspace)


def is_running(event: Received) -> bool:
    """A tool call is."""
    return event.type == "message.part.updated" and event.properties["part"].get("state", {}).get("status") == "running"


def offered(app: RunningApp) -> set[str]:
    return {tool.id for tool in requests(app)[-1].tools}


async def test_the_servers_of_a_directory_that_was_replaced_are_started_anew(tmp_path: Path) -> None:
    async with with_server(tmp_path) as (app, _):
        assert (await app.get("/mcp"))["plain"]["status"] == "connected"
        before = running(app.directory)
        app.directory.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", app.directory)
        assert (await app.get("/mcp"))["plain"]["status"] == "connected"
        await until(lambda: not any(map(psutil.pid_exists, before)))
        assert len(running(app.directory)) == 1


async def test_a_server_from_the_registry_answers_in_a_turn(tmp_path: Path) -> None:
    turns = [[call("plain_get_current_time", "c1", timezone="Asia/Tokyo")], [say("It is late.")]]
    async with with_server(tmp_path, *turns, server=from_pypi()) as (app, session):
        await app.get("/mcp")
        answer = await app.prompt(session, "What time is it?")
        first, second = requests(app)
        [state] = await states(app, session)
    spec = next(tool for tool in first.tools if tool.id == "plain_get_current_time")
    assert spec.parameters["required"] == ["timezone"] and "current time" in spec.description
    assert state["status"] == "completed" and state["title"] == "" and state["metadata"] == {"truncated": False}
    assert json.loads(state["output"])["timezone"] == "Asia/Tokyo" and texts(answer) == ["It is late."]
    assert second.messages[-1].content == (ToolResultBlock("c1", "plain_get_current_time", state["output"]),)


async def test_what_comes_of_calls(tmp_path: Path) -> None:
    """Texts are joined and other content attached, what is long is cut, what went wrong is an error; a server that dies in a
    call is there again in the next step. A tool that a batch names and is not there is told of."""
    batch = [{"tool": "plain_echo", "parameters": {"text": "in a batch"}}, {"tool": "plain_gone", "parameters": {}}]
    names = ["plain_many_words", "plain_flood", "plain_fail", "plain_die"]
    turns = [*([call(name)] for name in names), [call("plain_echo", text="again")], [call("batch", tool_calls=batch)], [say()]]
    async with with_server(tmp_path, *turns, experimental={"batch_tool": True}) as (app, session):
        answer = await app.prompt(session, "Go")
        assert_finished(await app.messages(session))
        words, flood, failed, died, echoed, batch_state, batched, gone = await states(app, session)
        assert await app.get("/mcp") == {"plain": {"status": "connected"}}
    attached = [(file["mime"], file.get("filename")) for file in words["attachments"]]
    assert words["output"] == "one\n\ntwo" and attached == [("image/png", None), ("application/zip", "clip.bin")]
    assert all(file["url"].startswith(f"data:{file['mime']};base64,") for file in words["attachments"])
    assert flood["metadata"]["truncated"] is True and Path(flood["metadata"]["outputPath"]).read_text().count("line") == 5000
    assert (failed["status"], failed["error"]) == ("error", "Error: that was wrong")
    assert died["status"] == "error" and "The server ended. It said: goodbye" in died["error"]
    assert (echoed["status"], echoed["output"], batched["output"]) == ("completed", "again", "in a batch")
    assert batch_state["title"] == "Batch execution (1/2 successful)"
    assert gone["error"].startswith("Error: There is no tool 'plain_gone'. There are: ")
    assert texts(answer) == ["Done."]


async def test_a_call_that_never_ends_does_not_hold_up_an_abort(tmp_path: Path) -> None:
    async with with_server(tmp_path, [call("plain_hang")]) as (app, session), app.events() as events:
        await app.prompt_async(session, "Go")
        await events.until(is_running)
        began = time.monotonic()
        assert await app.post(f"/session/{session}/abort") is True
        assert time.monotonic() - began < 20 and await statuses(app) == {}
        assert_finished(await app.messages(session))


async def test_a_server_that_does_not_answer_holds_no_turn_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "TURN_WAIT_SECONDS", 0.3)
    monkeypatch.setattr(servers, "CONNECT_SECONDS", 2 * servers.CONNECT_SECONDS)
    own = {"own": {"template": "Go further"}}
    async with with_server(tmp_path, [say()], [say()], [say()], server=plain("deaf"), command=own) as (app, session):
        began = time.monotonic()
        await app.prompt(session, "Go")
        await app.prompt(session, "Go on")
        await app.post(f"/session/{session}/command", {"command": "own", "arguments": ""})
        assert time.monotonic() - began < servers.CONNECT_SECONDS / 2 and "read" in offered(app)


async def test_tools_are_asked_for_denied_and_switched_off(tmp_path: Path) -> None:
    rules = {"plain_data": "ask", "plain_echo": "deny"}
    async with with_server(tmp_path, [call("plain_data")], [say()], [say()], permission=rules) as (app, session):
        asked = asyncio.create_task(app.prompt(session, "Go"))
        request = await pending(app)
        assert (request["permission"], request["patterns"], request["always"]) == ("plain_data", ["*"], ["*"])
        assert request["metadata"] == {}
        assert "plain_fail" in offered(app) and "plain_echo" not in offered(app)
        await reply(app, request, "reject")
        await asked
        [state] = await states(app, session)
        assert state["status"] == "error" and "output" not in state
        await app.prompt(session, "Go", tools={"plain_fail": False})
        assert "plain_data" in offered(app) and "plain_fail" not in offered(app)


async def test_a_tool_of_a_server_cannot_take_the_place_of_one_of_ours(tmp_path: Path) -> None:
    config = {"mcp": {"apply": plain("ours"), "external": plain("ours"), "doom": plain("ours")}, "permission": "allow"}
    async with talking(tmp_path, config=config, turns=[[say()]]) as (app, session):
        await app.prompt(session, "Go")
        ids = [tool.id for tool in requests(app)[-1].tools]
    assert len(ids) == len(set(ids)) and {"apply_loop", "external_patch", "doom_directory", "read"} <= set(ids)
    assert not {"apply_patch", "external_directory", "doom_loop"} & set(ids)


async def test_a_prompt_of_a_server_is_a_command_whose_text_runs_nothing(tmp_path: Path) -> None:
    async with with_server(tmp_path, [say("Hello.")], [say()]) as (app, session):
        [listed] = [command for command in await app.get("/command") if command.get("mcp")]
        for arguments in ("'Ada Lovelace' very warmly", ""):
            await app.post(f"/session/{session}/command", {"command": "plain:greet", "arguments": arguments})
        messages = await app.messages(session)
    shown = {"description": "Greets someone", "mcp": True, "source": "mcp", "template": "$1 $2", "hints": ["$1", "$2"]}
    assert listed == {"name": "plain:greet", **shown}
    assert [texts(message)[0] for message in messages if message["info"]["role"] == "user"] == [
        'Greet with {"name": "Ada Lovelace", "how": "very warmly"}, !`id` @a.txt',
        "Greet with {}, !`id` @a.txt",
    ]
    assert parts(messages[0], "file") == []


async def test_prompts_and_resources_of_a_server_are_there_however_slowly_it_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients ask for them once, when they start."""
    monkeypatch.setattr(servers, "TURN_WAIT_SECONDS", 0)
    async with with_server(tmp_path) as (app, _):
        assert "plain:greet" in [command["name"] for command in await app.get("/command")]
        await app.post("/instance/dispose")
        assert "plain:notes" in await app.get("/experimental/resource")


async def test_what_a_prompt_without_arguments_is_given_stands_behind_its_text(tmp_path: Path) -> None:
    async with with_server(tmp_path, [say()], [say()], server=plain("bare-prompt")) as (app, session):
        for arguments in ("in $1 words", " "):
            await app.post(f"/session/{session}/command", {"command": "plain:greet", "arguments": arguments})
        asked = [texts(message)[0] for message in await app.messages(session) if message["info"]["role"] == "user"]
    assert asked == ["Greet with {}, !`id` @a.txt\n\nin $1 words", "Greet with {}, !`id` @a.txt"]


def resource(uri: str, mime: str = "text/plain") -> dict[str, Any]:
    text = {"value": "@it", "start": 0, "end": 3}
    source = {"type": "resource", "clientName": "plain", "uri": uri, "text": text}
    return {"type": "file", "mime": mime, "filename": "it", "url": uri, "source": source}


async def test_resources_are_read_into_the_prompt_attached_or_reported(tmp_path: Path) -> None:
    async with with_server(tmp_path) as (app, session):
        notes, pixel = resource("demo://notes", "application/json"), resource("demo://pixel", "image/png")
        for part in (notes, pixel, resource("demo://missing")):
            await app.post(f"/session/{session}/message", {"parts": [text_part("Look"), part]})
        text, picture, missing = [message for message in await app.messages(session) if message["info"]["role"] == "user"]
        sent = [turn for turn in requests(app)[-1].messages if isinstance(turn, UserTurn)]
    assert texts(text)[2] == '{"noted": true}' and parts(text, "file")[0]["url"] == "demo://notes"
    assert [part.get("synthetic") for part in parts(text, "text")] == [None, True, True]
    (file,) = parts(picture, "file")
    assert file["mime"] == "image/png" and file["source"]["uri"] == "demo://pixel"
    assert file["url"].startswith("data:image/png;base64,")
    assert "[Binary content of type image/png]" in texts(picture)
    assert [[block.url for block in turn.content if isinstance(block, FileBlock)] for turn in sent] == [[], [file["url"]], []]
    assert "Reading it failed" in texts(missing)[2] and parts(missing, "file") == []
