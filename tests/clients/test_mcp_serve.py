"""`opensession mcp serve`, a child of the official SDK's client: with a server of its own, and attached to one that runs."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from acp_editor import are_gone, children_of
from doc_snippets import SHOWN_BASE, blocks
from launcher import opensession
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import ERAS, called, refused
from polling import until
from running_server import ROOT, RunningServer, clean_environment, new_workspace, serving_here, this_checkout

from app.api.mcp_server.server import MAX_LINE_CHARACTERS
from app.users.tokens import TokenStore

SECONDS = 60
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}


@pytest.fixture
def program(tmp_path: Path) -> StdioServerParameters:
    (tmp_path / "home").mkdir()
    new_workspace(tmp_path / "workspace")
    return program_in(tmp_path)


def program_in(base: Path, *arguments: str, **environment: str) -> StdioServerParameters:
    extra = {"OPENSESSION_DATA_DIR": str(base / "data"), **environment}
    return StdioServerParameters(
        command=opensession(),
        args=["mcp", "serve", *arguments],
        env=clean_environment(base / "home", **this_checkout()[1], **extra),
        cwd=base / "workspace",
    )


@asynccontextmanager
async def connected(program: Any, era: str = "auto") -> AsyncIterator[Client]:
    async with asyncio.timeout(3 * SECONDS), Client(program, mode=era) as client:
        yield client


@contextmanager
def child(program: StdioServerParameters) -> Iterator[subprocess.Popen[bytes]]:
    """Its lines are written and read by the test itself."""
    command, pipe = [program.command, *program.args], subprocess.PIPE
    started = subprocess.Popen(command, cwd=program.cwd, env=program.env, stdin=pipe, stdout=pipe)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def send(process: subprocess.Popen[bytes], *messages: dict[str, Any] | bytes) -> None:
    assert process.stdin
    for message in messages:
        process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
    process.stdin.flush()


def answer_to(process: subprocess.Popen[bytes], request: int) -> dict[str, Any]:
    assert process.stdout
    for line in process.stdout:
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == request and "method" not in message:
            return message
    raise AssertionError("it has ended")


@pytest.mark.parametrize("era", ERAS)
async def test_a_session_is_prompted_and_its_progress_told(program: StdioServerParameters, tmp_path: Path, era: str) -> None:
    async with connected(program, era) as client:
        session = (await called(client, "create_session"))["id"]
        result = await (await begun(client, session, "write notes.md: # Notes", told := []))
        assert result.structured_content["state"] == "idle" and any("write" in line for line in told)
        assert (tmp_path / "workspace" / "notes.md").exists()
        assert "Session not found" in await refused(client, "read_session", sessionID="ses_none")


async def begun(client: Client, session: str, text: str, told: list[str] | None = None) -> "asyncio.Task[Any]":
    """The call of a prompt whose turn has begun; `told` of its progress."""
    has_begun, said = asyncio.Event(), [] if told is None else told

    async def progress(count: float, total: float | None, message: str | None) -> None:
        said.append(message or "")
        has_begun.set()

    given = {"sessionID": session, "text": text}
    call = asyncio.create_task(client.call_tool("prompt_session", given, progress_callback=progress))
    await has_begun.wait()
    return call


@pytest.mark.parametrize("era", ERAS)
async def test_a_permission_is_answered_and_a_cancelled_call_aborts_the_turn(program: StdioServerParameters, era: str) -> None:
    async with connected(program, era) as client:
        session = (await called(client, "create_session"))["id"]
        asking = await called(client, "prompt_session", sessionID=session, text="read /etc/hosts")
        (request,) = asking["permissions"]
        await called(client, "answer_permission", requestID=request["id"], reply="once")
        assert "`read` succeeded" in (await called(client, "wait_for_session", sessionID=session))["text"]
        (await begun(client, session, "run sleep 600")).cancel()
        assert (await called(client, "wait_for_session", sessionID=session))["state"] == "aborted"


def test_an_input_that_is_no_pipe_is_refused_by_a_sentence(program: StdioServerParameters) -> None:
    command = [program.command, *program.args]
    ended = subprocess.run(
        command, cwd=program.cwd, env=program.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    assert (ended.returncode, ended.stdout) == (1, "") and ended.stderr.endswith("its standard input is a pipe.\n")


# Attached.


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with serving_here(tmp_path) as running:
        yield running


async def test_attached_it_may_do_what_its_login_may(server: RunningServer, tmp_path: Path) -> None:
    async with connected(program_in(tmp_path, "--attach", server.base)) as client:
        session = (await called(client, "create_session", title="By a child"))["id"]
        assert (await called(client, "prompt_session", sessionID=session, text="long 3"))["state"] == "idle"
    tokens = TokenStore(server.data)
    reading = {"OPENSESSION_TOKEN": tokens.create("reads", read_only=True)}
    async with connected(program_in(tmp_path, "--attach", server.base, **reading)) as client:
        assert [each["id"] for each in (await called(client, "list_sessions"))["sessions"]] == [session]
        assert "may read and change nothing" in await refused(client, "create_session")
    async with connected(program_in(tmp_path, "--attach", server.base)) as client:
        assert "needs a login" in await refused(client, "list_sessions")


async def test_a_call_that_waits_holds_up_no_end_of_the_server(server: RunningServer) -> None:
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(30, read=300)) as http:
        async with connected(streamable_http_client(f"{server.base}/mcp-server", http_client=http)) as client:
            session = (await called(client, "create_session"))["id"]
            prompt = await begun(client, session, "run sleep 602")
            server.process.terminate()
            assert (await prompt).structured_content["state"] == "aborted"  # the server's grace period is over
            assert await asyncio.to_thread(server.process.wait, SECONDS) == -signal.SIGTERM  # not by force


@pytest.mark.parametrize("place", [0, 1], ids=["by address", "as a program"])
async def test_the_configuration_of_the_page_connects(server: RunningServer, tmp_path: Path, place: int) -> None:
    shown = [block.code for block in blocks((ROOT / "docs" / "mcp-server.md").read_text()) if block.kind == "json mcp"][place]
    config = json.loads(shown)["mcpServers"]["opensession"]
    if "command" in config:
        arguments = [str(server.workspace) if each == "/home/me/project" else each for each in config["args"]]
        found: Any = program_in(tmp_path).model_copy(update={"args": arguments})
    else:
        token = TokenStore(server.data).create("agent")
        headers = {name: value.replace("TOKEN", token) for name, value in config["headers"].items()}
        http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300))
        found = streamable_http_client(config["url"].replace(SHOWN_BASE, server.base), http_client=http)
    async with connected(found) as client:
        assert (await called(client, "create_session"))["directory"] == str(server.workspace)


# Its end.


@pytest.mark.parametrize("end", ["input", signal.SIGTERM, signal.SIGINT])
async def test_it_ends_with_its_client_and_leaves_nothing(
    program: StdioServerParameters, tmp_path: Path, end: str | signal.Signals
) -> None:
    with child(program) as process:
        send(process, INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        await asyncio.to_thread(answer_to, process, 1)
        call = {"name": "create_session", "arguments": {}}
        send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        session = (await asyncio.to_thread(answer_to, process, 2))["result"]["structuredContent"]["id"]
        call = {"name": "prompt_session", "arguments": {"sessionID": session, "text": "run touch begun; sleep 601"}}
        send(process, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call})
        await until((tmp_path / "workspace" / "begun").exists)
        below = children_of(process.pid)
        assert below
        if isinstance(end, str):
            assert process.stdin
            process.stdin.close()
            process.stdin = None
        else:
            process.send_signal(end)
        await asyncio.to_thread(process.wait, SECONDS)
        await until(lambda: are_gone(below))


async def test_what_is_no_message_harms_nothing(program: StdioServerParameters) -> None:
    with child(program) as process:
        send(process, b"no json", b"[]", b"\xff\xfe", b"{}", INITIALIZE)
        assert (await asyncio.to_thread(answer_to, process, 1))["result"]["serverInfo"]["name"] == "opensession"
        call = {"name": "create_session", "arguments": {"title": "half a character: \ud83d"}}
        send(process, b" " * (MAX_LINE_CHARACTERS + 1), {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        made = (await asyncio.to_thread(answer_to, process, 2))["result"]["structuredContent"]
        assert made["title"] == "half a character: \ufffd"
