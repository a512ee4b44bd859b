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
from running_app import RunningApp, running_app
from sse_reader import Received
from turns import assert_finished, call, configured, parts, pending, requests, say, statuses, talking, texts, tools, until

from app.providers.base import FileBlock, ToolResultBlock, UserTurn
from app.tools.mcp import servers

Message = dict[str, Any]


@asynccontextmanager
async def with_server(base: Path, *turns: Any, server: dict[str, Any] | None = None, **config: Any) -> AsyncIterator[RunningApp]:
    workspace = configured(base, {"mcp": {"plain": server or plain()}, **config})
    async with running_app(base, workspace=workspace, turns=turns) as app:
        yield app
    assert not running(workspace)


async def calling(
    base: Path, tool: str, config: dict[str, Any] | None = None, **arguments: Any
) -> tuple[dict[str, Any], Message]:
    """The state of a call of one tool, and the answer after it."""
    async with with_server(base, [call(tool, **arguments)], [say()], **(config or {})) as app:
        session = await app.create_session()
        answer = await app.prompt(session["id"], "Go")
        found = await app.messages(session["id"])
    assert_finished(found)
    (part,) = tools(found)
    return part["state"], answer


def is_running(event: Received) -> bool:
    """A tool call is."""
    return event.type == "message.part.updated" and event.properties["part"].get("state", {}).get("status") == "running"


def offered(app: RunningApp) -> set[str]:
    return {tool.id for tool in requests(app)[-1].tools}


async def test_the_servers_of_a_directory_that_was_replaced_are_started_anew(tmp_path: Path) -> None:
    async with with_server(tmp_path) as app:
        assert (await app.get("/mcp"))["plain"]["status"] == "connected"
        before = running(app.directory)
        app.directory.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", app.directory)
        assert (await app.get("/mcp"))["plain"]["status"] == "connected"
        await until(lambda: not any(map(psutil.pid_exists, before)))
        assert len(running(app.directory)) == 1


async def test_a_server_from_the_registry_answers_in_a_turn(tmp_path: Path) -> None:
    turn = [[call("plain_get_current_time", "c1", timezone="Asia/Tokyo")], [say("It is late.")]]
    async with with_server(tmp_path, *turn, server=from_pypi()) as app:
        await app.get("/mcp")
        session = await app.create_session()
        answer = await app.prompt(session["id"], "What time is it?")
        first, second = requests(app)
        state = tools(await app.messages(session["id"]))[0]["state"]
    spec = next(tool for tool in first.tools if tool.id == "plain_get_current_time")
    assert spec.parameters["required"] == ["timezone"] and "current time" in spec.description
    assert state["status"] == "completed" and state["title"] == "" and state["metadata"] == {"truncated": False}
    assert json.loads(state["output"])["timezone"] == "Asia/Tokyo" and texts(answer) == ["It is late."]
    assert second.messages[-1].content == (ToolResultBlock("c1", "plain_get_current_time", state["output"]),)


async def test_texts_are_joined_and_other_content_is_attached(tmp_path: Path) -> None:
    state, _ = await calling(tmp_path, "plain_many_words")
    assert state["output"] == "one\n\ntwo"
    assert [(file["mime"], file.get("filename")) for file in state["attachments"]] == [
        ("image/png", None),
        ("application/zip", "clip.bin"),
    ]
    assert all(file["url"].startswith(f"data:{file['mime']};base64,") for file in state["attachments"])


async def test_a_long_answer_is_cut_as_that_of_any_tool(tmp_path: Path) -> None:
    state, _ = await calling(tmp_path, "plain_flood")
    assert state["metadata"]["truncated"] is True and Path(state["metadata"]["outputPath"]).read_text().count("line") == 5000


async def test_what_a_tool_says_went_wrong_is_an_error_of_the_call(tmp_path: Path) -> None:
    state, answer = await calling(tmp_path, "plain_fail")
    assert (state["status"], state["error"]) == ("error", "Error: that was wrong") and texts(answer) == ["Done."]


async def test_a_server_that_dies_in_a_call_ends_the_call_and_is_there_again_in_the_next_step(tmp_path: Path) -> None:
    turns = [[call("plain_die")], [call("plain_echo", text="again")], [say()]]
    async with with_server(tmp_path, *turns) as app:
        session = await app.create_session()
        await app.prompt(session["id"], "Go")
        died, echoed = (part["state"] for part in tools(await app.messages(session["id"])))
        status = await app.get("/mcp")
    assert died["status"] == "error" and "The server ended. It said: goodbye" in died["error"]
    assert (echoed["status"], echoed["output"], status) == ("completed", "again", {"plain": {"status": "connected"}})


async def test_a_call_that_never_ends_does_not_hold_up_an_abort(tmp_path: Path) -> None:
    async with with_server(tmp_path, [call("plain_hang")]) as app, app.events() as events:
        session = await app.create_session()
        await app.prompt_async(session["id"], "Go")
        await events.until(is_running)
        began = time.monotonic()
        assert await app.post(f"/session/{session['id']}/abort") is True
        assert time.monotonic() - began < 20 and await statuses(app) == {}
        assert_finished(await app.messages(session["id"]))


async def test_a_server_that_does_not_answer_holds_no_turn_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "MOMENT", 0.3)
    async with with_server(tmp_path, [say("one")], [say("two")], server=plain("deaf")) as app:
        session = await app.create_session()
        began = time.monotonic()
        await app.prompt(session["id"], "Go")
        await app.prompt(session["id"], "Go on")
        assert time.monotonic() - began < servers.CONNECT_SECONDS and "read" in offered(app)


async def test_permission_is_asked_before_a_tool_is_called(tmp_path: Path) -> None:
    async with with_server(tmp_path, [call("plain_echo", text="hi")], [say()], permission={"plain_*": "ask"}) as app:
        session = await app.create_session()
        asked = asyncio.create_task(app.prompt(session["id"], "Go"))
        request = await pending(app)
        assert (request["permission"], request["patterns"], request["always"]) == ("plain_echo", ["*"], ["*"])
        assert request["metadata"] == {}
        await app.post(f"/permission/{request['id']}/reply", {"reply": "reject"})
        await asked
        (part,) = tools(await app.messages(session["id"]))
    assert part["state"]["status"] == "error" and "hi" not in json.dumps(part["state"].get("output"))


async def test_denied_tools_and_those_that_a_prompt_switches_off_are_not_offered(tmp_path: Path) -> None:
    async with with_server(tmp_path, [say()], [say()], permission={"plain_echo": "deny"}) as app:
        session = await app.create_session()
        await app.prompt(session["id"], "Go")
        assert "plain_fail" in offered(app) and "plain_echo" not in offered(app)
        await app.prompt(session["id"], "Go", tools={"plain_fail": False})
        assert "plain_data" in offered(app) and "plain_fail" not in offered(app)


async def test_a_tool_of_a_server_cannot_take_the_place_of_one_of_ours(tmp_path: Path) -> None:
    servers = {"mcp": {"apply": plain(), "todo": plain()}}
    async with talking(tmp_path, config=servers, turns=[[say()]]) as (app, session):
        await app.prompt(session, "Go")
        ids = [tool.id for tool in requests(app)[-1].tools]
    assert len(ids) == len(set(ids)) and {"apply_echo", "todo_echo", "read"} <= set(ids)


async def test_a_batch_calls_tools_of_servers_and_tells_of_those_that_are_not_there(tmp_path: Path) -> None:
    calls = [{"tool": "plain_echo", "parameters": {"text": "in a batch"}}, {"tool": "plain_gone", "parameters": {}}]
    turns = [[call("batch", tool_calls=calls)], [say()]]
    async with with_server(tmp_path, *turns, experimental={"batch_tool": True}) as app:
        session = await app.create_session()
        await app.prompt(session["id"], "Go")
        states = {part["tool"]: part["state"] for part in tools(await app.messages(session["id"]))}
    assert states["plain_echo"]["output"] == "in a batch"
    assert states["plain_gone"]["error"].startswith("Error: There is no tool 'plain_gone'. There are: ")


async def test_a_prompt_of_a_server_is_a_command_whose_text_runs_nothing(tmp_path: Path) -> None:
    async with with_server(tmp_path, [say("Hello.")], [say()]) as app:
        listed = [command for command in await app.get("/command") if command.get("mcp")]
        session = await app.create_session()
        path = f"/session/{session['id']}/command"
        await app.post(path, {"command": "plain:greet", "arguments": "'Ada Lovelace' very warmly"})
        await app.post(path, {"command": "plain:greet", "arguments": ""})
        sent = [texts(message)[0] for message in await app.messages(session["id"]) if message["info"]["role"] == "user"]
        attached = parts((await app.messages(session["id"]))[0], "file")
    assert listed == [
        {
            "name": "plain:greet",
            "description": "Greets someone",
            "mcp": True,
            "source": "mcp",
            "template": "$1 $2",
            "hints": ["$1", "$2"],
        }
    ]
    assert sent == ['Greet with {"name": "Ada Lovelace", "how": "very warmly"}, !`id` @a.txt', "Greet with {}, !`id` @a.txt"]
    assert attached == []


def resource(uri: str, mime: str = "text/plain") -> dict[str, Any]:
    text = {"value": "@it", "start": 0, "end": 3}
    source = {"type": "resource", "clientName": "plain", "uri": uri, "text": text}
    return {"type": "file", "mime": mime, "filename": "it", "url": uri, "source": source}


async def attaching(base: Path, part: dict[str, Any]) -> tuple[Message, UserTurn]:
    """The stored message of a prompt with this part, and what the model was sent of it."""
    async with with_server(base, [say()]) as app:
        session = await app.create_session()
        await app.post(f"/session/{session['id']}/message", {"parts": [{"type": "text", "text": "Look"}, part]})
        (turn,) = requests(app)[-1].messages
        assert isinstance(turn, UserTurn)
        return (await app.messages(session["id"]))[0], turn


async def test_a_resource_that_is_text_is_read_into_the_prompt(tmp_path: Path) -> None:
    message, turn = await attaching(tmp_path, resource("demo://notes", "application/json"))
    assert texts(message)[2] == '{"noted": true}' and parts(message, "file")[0]["url"] == "demo://notes"
    assert [part.get("synthetic") for part in parts(message, "text")] == [None, True, True]
    assert not any(isinstance(block, FileBlock) for block in turn.content)


async def test_a_resource_that_is_a_picture_is_attached(tmp_path: Path) -> None:
    message, turn = await attaching(tmp_path, resource("demo://pixel", "image/png"))
    (file,) = parts(message, "file")
    assert (
        file["mime"] == "image/png"
        and file["url"].startswith("data:image/png;base64,")
        and file["source"]["uri"] == "demo://pixel"
    )
    assert "[Binary content of type image/png]" in texts(message)
    assert [block.url for block in turn.content if isinstance(block, FileBlock)] == [file["url"]]


async def test_a_resource_that_cannot_be_read_is_reported_and_the_prompt_goes_on(tmp_path: Path) -> None:
    message, _ = await attaching(tmp_path, resource("demo://missing"))
    assert "Reading it failed" in texts(message)[2] and parts(message, "file") == []
