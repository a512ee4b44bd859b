"""An MCP server that sends too much is not read to the end: over HTTP, in a stream, as a program; answers, lists, sign-ins."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flood import Chunks, Flood, flooding, repeated
from mcp_servers import plain
from test_mcp_servers import Directory

from app.schema.errors import BadRequest
from app.tools.mcp import client, signing_in
from app.tools.mcp.values import McpFailure
from app.util import bounds

FLOOD = 60_000_000
TAKEN = 20_000_000
"""What stands in sockets, too, has been sent."""
SCHEMA = {"type": "object", "properties": {}}
Result = Callable[[], Chunks]


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    made = Directory(tmp_path)
    yield made
    await made.servers.close()


@pytest.fixture
def flood() -> Iterator[Flood]:
    with flooding() as flood:
        yield flood


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BODY_BYTES", 500_000)
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 500_000)
    monkeypatch.setattr(client, "MOST_LISTED_BYTES", 300_000)


def serve(flood: Flood, *, in_stream: bool = False, **results: Result) -> None:
    """`results` are what is sent as the JSON of a result, by method; others are answered honestly."""
    tool = {"name": "echo", "description": "Says it again", "inputSchema": SCHEMA}
    info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "flood", "version": "1"}}

    def honest(request: dict[str, Any]) -> dict[str, Any]:
        match request.get("method"):
            case "initialize":
                return {**info, "protocolVersion": request["params"]["protocolVersion"]}
            case "tools/list":
                return {"tools": [tool]}
            case _:
                return {"content": [{"type": "text", "text": "said"}]}

    def send(request: dict[str, Any]) -> Chunks:
        if "id" not in request:
            return
        made = results.get(str(request["method"]).replace("/", "_"))
        yield b"data: " if in_stream else b""
        yield b'{"jsonrpc": "2.0", "id": %d, "result": ' % request["id"]
        yield from made() if made else iter([json.dumps(honest(request)).encode()])
        yield b"}" + (b"\n\n" if in_stream else b"")

    flood.headers = {"content-type": "text/event-stream" if in_stream else "application/json"}
    flood.send = send


def long_text(size: int = FLOOD) -> Chunks:
    yield b'{"content": [{"type": "text", "text": "'
    yield from repeated(b"x", size)
    yield b'"}]}'


def tiny_values() -> Chunks:
    yield b'{"content": [], "structuredContent": {"many": [' + b"[]," * 120_000 + b"[]]}}"


def long_list() -> Chunks:
    yield b'{"tools": [{"name": "t", "inputSchema": {"type": "object"}, "description": "'
    yield from repeated(b"x", FLOOD)
    yield b'"}]}'


def pages_for_ever() -> Chunks:
    tool = {"name": "t", "description": "x" * 50_000, "inputSchema": SCHEMA}
    yield json.dumps({"tools": [tool], "nextCursor": "more"}).encode()


def web(flood: Flood) -> dict[str, Any]:
    return {"type": "remote", "url": f"{flood.url}/mcp", "oauth": False}


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("result", [long_text, pytest.param(lambda: repeated(b" ", FLOOD), id="blanks")])
async def test_an_answer_that_is_too_long_fails_the_call(
    directory: Directory, flood: Flood, result: Result, in_stream: bool
) -> None:
    serve(flood, tools_call=result, in_stream=in_stream)
    servers = directory.configure(web=web(flood))
    with pytest.raises(McpFailure):
        await servers.call_tool("web", "echo", {})
    assert flood.sent < TAKEN
    serve(flood, in_stream=in_stream)
    assert (await servers.call_tool("web", "echo", {})).text == "said"


async def test_an_answer_of_very_many_values_fails_the_call(directory: Directory, flood: Flood) -> None:
    serve(flood, tools_call=tiny_values)
    servers = directory.configure(web=web(flood))
    with pytest.raises(McpFailure, match="values"):
        await servers.call_tool("web", "echo", {})


async def test_a_compressed_answer_is_not_unpacked(directory: Directory, flood: Flood) -> None:
    serve(flood)
    servers = directory.configure(web=web(flood))
    await servers.statuses()
    assert {*flood.encodings} == {"identity"}
    flood.headers["content-encoding"] = "gzip"
    flood.send = lambda request: iter([gzip.compress(b" " * FLOOD)])
    with pytest.raises(McpFailure, match="compressed"):
        await servers.call_tool("web", "echo", {})


@pytest.mark.parametrize("result", [long_list, pages_for_ever])
async def test_a_list_that_is_too_long_is_the_server_s_status(directory: Directory, flood: Flood, result: Result) -> None:
    serve(flood, tools_list=result)
    directory.configure(web=web(flood))
    found = await directory.status("web")
    assert found["status"] == "failed" and "more than" in found["error"], found


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_sign_in_s_documents_have_a_bound(directory: Directory, flood: Flood, status: int, encoding: str) -> None:
    """Each that is looked for after the server has answered 401."""

    def send(request: dict[str, Any]) -> Chunks:
        flood.status, flood.headers = status, {"content-type": "application/json", "content-encoding": encoding}
        return iter([b"{}"]) if "method" in request else repeated(b" ", FLOOD)

    flood.status, flood.headers, flood.send = 401, {"content-type": "application/json"}, send
    servers = directory.configure(web={"type": "remote", "url": f"{flood.url}/mcp"})
    await servers.statuses()
    flood.status, flood.headers = 401, {"content-type": "application/json"}
    with pytest.raises(BadRequest):
        async with asyncio.timeout(60):
            await signing_in.start(servers, "web", "http://127.0.0.1:4096")
    assert flood.asked > 2 and flood.sent < flood.asked * TAKEN / 2


async def test_a_program_s_line_has_a_bound(directory: Directory) -> None:
    servers = directory.configure(one=plain())
    with pytest.raises(McpFailure, match="more than 500000 bytes"):
        await servers.call_tool("one", "endless", {"megabytes": 20})
    assert (await servers.call_tool("one", "echo", {"text": "again"})).text == "again"


async def test_a_program_s_line_of_very_many_values_is_no_message(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 5_000_000)
    servers = directory.configure(one=plain(timeout=2000))
    with pytest.raises(McpFailure):
        await servers.call_tool("one", "tiny", {})
    assert (await servers.call_tool("one", "echo", {"text": "again"})).text == "again"


async def test_honest_answers_of_some_length(directory: Directory, flood: Flood) -> None:
    serve(flood, tools_call=lambda: long_text(100_000))
    servers = directory.configure(web=web(flood), one=plain())
    assert len((await servers.call_tool("web", "echo", {})).text) >= 100_000
    assert (await servers.call_tool("one", "echo", {"text": "y" * 400_000})).text == "y" * 400_000
