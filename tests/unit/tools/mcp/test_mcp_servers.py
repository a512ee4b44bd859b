"""The servers of one directory: real programs, most of them misbehaving in one way."""

import asyncio
import gzip
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flood import Chunks, Flood, flooding, repeated
from mcp_servers import over_http, plain, running, visit
from obstacles import endless_links
from own_announcements import OwnAnnouncements
from pydantic import TypeAdapter

from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.record.engine import StorageError
from app.schema.config import McpConfig
from app.schema.errors import BadRequest, NotFound
from app.schema.event import AnnouncedEvent, EventMcpToolsChanged
from app.tools.mcp import client, signing_in
from app.tools.mcp.servers import McpServers, McpSettings
from app.tools.mcp.values import Content, CredentialStore, McpFailure
from app.util import bounds
from app.util.environment import system_tls

CONFIG: TypeAdapter[McpConfig] = TypeAdapter(McpConfig)
PATIENCE = 60.0


async def close(servers: McpServers) -> None:
    servers.stop()
    await servers.stopped()


async def call_tool(servers: McpServers, server: str, tool: str, arguments: dict[str, Any]) -> Content:
    return await (await servers.connection(server)).call_tool(tool, arguments)


class Directory:
    """Its servers and what was announced of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed: list[str] = []
        self._news = asyncio.Event()
        environment = {"PATH": os.environ["PATH"], "SHARED": "1"}
        settings = McpSettings(environment, OFF, CredentialStore(path / "data"), OwnAnnouncements(self._heard))
        self.servers = McpServers(SandboxWorkspace(path, path), settings)

    def configure(self, **configured: dict[str, Any]) -> McpServers:
        before = self.servers
        wanted = {name: CONFIG.validate_python(entry) for name, entry in configured.items()}
        self.servers = before.configured(wanted, None, SandboxWorkspace(self.path, self.path))
        self.servers.start()
        before.stop()
        return self.servers

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.servers.statuses())[name].wire()

    async def tools(self) -> set[str]:
        return {tool.name for offers in await self.servers.offers() for tool in offers.tools}

    async def until_changed(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.changed) < times:
                self._news.clear()
                await self._news.wait()

    def _heard(self, directory: str, event: AnnouncedEvent) -> None:
        assert directory == str(self.path) and isinstance(event, EventMcpToolsChanged)
        self.changed.append(event.properties.server)
        self._news.set()


@pytest.fixture(autouse=True)
def a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for what servers offer waits for those that connect, however slowly."""
    monkeypatch.setattr("app.tools.mcp.servers.TURN_WAIT_SECONDS", PATIENCE)


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    made = Directory(tmp_path)
    yield made
    await close(made.servers)
    assert not running(tmp_path)


async def test_a_server_s_tools_prompts_and_resources_are_offered(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    servers = directory.configure(plain=plain(environment={"OWN": "1"}))
    (offers,) = await servers.offers()
    echo = offers.tools[0]
    assert (echo.server, echo.name, echo.description) == ("plain", "echo", "Says it again")
    assert echo.schema == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert [(prompt.name, prompt.arguments) for prompt in offers.prompts] == [("greet", ("name", "how"))]
    notes = offers.resources[0]
    assert (notes.name, notes.uri, notes.mime) == ("notes", "demo://notes", "application/json")
    assert directory.changed == ["plain"]
    seen = (await call_tool(servers, "plain", "environment", {})).text.split()
    assert {"PATH", "SHARED", "OWN"} <= set(seen) and "ANTHROPIC_API_KEY" not in seen
    await call_tool(servers, "plain", "grow", {})
    await directory.until_changed(2)
    assert "grown" in await directory.tools()


def program(*command: str, **fields: Any) -> dict[str, Any]:
    return {"type": "local", "command": [*command], **fields}


WHERE = ("sh", "-c", "pwd >&2; exit 3")
KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing": (program("/nowhere/at-all"), "failed", "could not be started"),
    "ends": (program("sh", "-c", "echo no key given >&2; exit 3"), "failed", "no key given"),
    "garbage": (program("yes"), "failed", "not JSON-RPC"),
    "deaf": (plain("deaf", timeout=300), "failed", r"within 0\.3 s"),
    "unreachable": ({"type": "remote", "url": "http://127.0.0.1:9/mcp"}, "failed", "failed"),
    "switched off": (plain(enabled=False), "disabled", ""),
    "greets first": (plain("greeting"), "connected", ""),
    "lists what is no prompt and no resource": (plain("odd-lists"), "connected", ""),
    "in a directory of its own": (program(*WHERE, cwd="tools"), "failed", r"It said: /\S+/tools$"),
    "above": (plain(cwd=".."), "failed", r"^cwd: /\S+ is not in"),
    "behind a link": (plain(cwd="way-out"), "failed", r"^cwd: /\S+ is not in"),
    "behind a thousand links": (plain(cwd="endless"), "failed", r"^cwd: /\S+ is not in"),
    "in what is gone": (plain(cwd="gone"), "failed", r"^cwd: there is no directory"),
}


async def test_what_becomes_of_each_server_is_its_status(directory: Directory) -> None:
    (directory.path / "tools").mkdir()
    (directory.path / "way-out").symlink_to("/")
    endless_links(directory.path / "endless")
    named = program(*WHERE, cwd=str(directory.path / "tools"))
    kinds = {**KINDS, "in a named directory": (named, "failed", f"It said: {directory.path}/tools$")}
    servers = directory.configure(**{name: entry for name, (entry, _, _) in kinds.items()})
    assert "echo" in await directory.tools(), "one that fails leaves the others alone"
    found = {name: status.wire() for name, status in (await servers.statuses()).items()}
    assert {name: each["status"] for name, each in found.items()} == {name: status for name, (_, status, _) in kinds.items()}
    for name, (_, _, says) in kinds.items():
        assert re.search(says, found[name].get("error", "")), (name, found[name])


async def test_a_server_that_takes_too_long_has_failed_though_the_sdk_is_not_imported_yet(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread imports it, which takes longer than a short timeout."""
    monkeypatch.setitem(sys.modules, "mcp.client.auth", None)
    directory.configure(deaf=plain("deaf", timeout=300))
    async with asyncio.timeout(PATIENCE):
        assert "within 0.3 s" in (await directory.status("deaf"))["error"]


async def test_a_call_that_is_cancelled_returns_at_once_and_the_server_goes_on(directory: Directory) -> None:
    """Also where the server reads nothing any more."""
    servers = directory.configure(plain=plain())
    await servers.statuses()
    hanging = asyncio.create_task(call_tool(servers, "plain", "hang", {}))
    assert (await call_tool(servers, "plain", "echo", {"text": "meanwhile"})).text == "meanwhile"
    (process,) = running(directory.path)
    os.kill(process, signal.SIGSTOP)
    stuck = [asyncio.create_task(call_tool(servers, "plain", "echo", {"text": "x" * 500_000})) for _ in range(3)]
    await asyncio.wait(stuck, timeout=0.3)
    began = time.monotonic()
    for call in (hanging, *stuck):
        call.cancel()
    await asyncio.wait([hanging, *stuck])
    assert time.monotonic() - began < 20 and all(call.cancelled() for call in (hanging, *stuck))
    os.kill(process, signal.SIGCONT)
    assert (await call_tool(servers, "plain", "echo", {"text": "goes on"})).text == "goes on"


async def test_a_call_that_takes_too_long_fails_unless_it_reports_progress(directory: Directory) -> None:
    servers = directory.configure(plain=plain(timeout=700))
    with pytest.raises(McpFailure, match=r"has not answered for 0\.7 s"):
        await call_tool(servers, "plain", "hang", {})
    began = time.monotonic()
    assert (await call_tool(servers, "plain", "work", {})).text == "worked"
    assert time.monotonic() - began > 1


async def test_a_server_that_dies_in_a_call_is_connected_again_when_next_used(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    with pytest.raises(McpFailure, match=r"ended\. It said: goodbye"):
        await call_tool(servers, "plain", "die", {})
    await directory.until_changed(2)
    assert await directory.status("plain") == {"status": "failed", "error": "The server ended. It said: goodbye"}
    assert "echo" in await directory.tools()
    assert await directory.status("plain") == {"status": "connected"}
    with pytest.raises(McpFailure):
        await call_tool(servers, "plain", "die", {})
    assert (await call_tool(servers, "plain", "echo", {"text": "back"})).text == "back", "a call itself connects it, too"


async def test_a_server_that_never_connected_is_tried_again_only_on_request(directory: Directory) -> None:
    program = directory.path / "server"
    servers = directory.configure(late={"type": "local", "command": [str(program)]})
    assert (await directory.status("late"))["status"] == "failed"
    program.write_text(f"#!/bin/sh\nexec {' '.join(plain()['command'])}\n")
    program.chmod(0o755)
    assert not await directory.tools()
    await servers.connect("late")
    assert "echo" in await directory.tools()


async def test_a_disconnected_server_offers_nothing_until_it_is_connected(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    assert await directory.tools()
    await servers.disconnect("plain")
    assert (await directory.status("plain"), await directory.tools()) == ({"status": "disabled"}, set())
    assert not running(directory.path)
    with pytest.raises(McpFailure, match="not connected"):
        await call_tool(servers, "plain", "echo", {"text": "x"})
    await servers.connect("plain")
    assert "echo" in await directory.tools()
    with pytest.raises(NotFound):
        await servers.disconnect("other")


async def test_a_disconnected_server_ends_though_the_choice_cannot_be_stored(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(*_: str) -> None:
        raise StorageError("full")

    servers = directory.configure(plain=plain())
    assert await directory.tools()
    monkeypatch.setattr(servers.settings.states, "put", put)
    with pytest.raises(StorageError):
        await servers.disconnect("plain")
    await servers.stopped()
    assert (await directory.status("plain"), running(directory.path)) == ({"status": "disabled"}, [])


async def test_only_what_changed_in_the_configuration_is_connected_anew(directory: Directory) -> None:
    servers = directory.configure(kept=plain(), changed=plain(), gone=plain())
    await servers.add("added", CONFIG.validate_python(plain()))
    before = {server.name: server.connection for server in servers}
    servers = directory.configure(kept=plain(), changed=plain("no-tools"), new=plain(), switch={"enabled": True})
    assert set(await servers.statuses()) == {"kept", "added", "changed", "new"}
    after = {server.name: server.connection for server in servers}
    assert after["kept"] is before["kept"] and after["added"] is before["added"] and after["changed"] is not before["changed"]


async def test_a_server_is_connected_as_long_as_one_of_its_sets_is_started(directory: Directory) -> None:
    before = directory.configure(kept=plain(), gone=plain())
    await before.statuses()
    after = before.configured({"kept": CONFIG.validate_python(plain())}, None, SandboxWorkspace(directory.path, directory.path))
    after.start()
    assert (await call_tool(before, "gone", "echo", {"text": "x"})).text == "x", "what uses the first set goes on with it"
    connection = before.find("kept").connection
    await close(before)
    assert len(running(directory.path)) == 1 and after.find("kept").connection is connection
    await close(after)
    assert not running(directory.path)
    before.start()
    assert (await call_tool(before, "gone", "echo", {"text": "x"})).text == "x", "a set may be started again"


async def test_closing_ends_the_programs_also_those_that_are_still_connecting(directory: Directory) -> None:
    servers = directory.configure(up=plain(), deaf=plain("deaf"))
    await servers.connect("up")
    assert len(running(directory.path)) == 2
    began = time.monotonic()
    await close(servers)
    assert time.monotonic() - began < 20 and not running(directory.path)


async def test_a_process_that_outlives_its_program_keeps_no_pipe_to_it_open(directory: Directory) -> None:
    left = program("sh", "-c", "env -i setsid /bin/sleep 60 & echo $! > pid; read request")
    directory.configure(left=left)
    assert (await directory.status("left"))["status"] == "failed"
    process = int((directory.path / "pid").read_text())
    try:
        own = [os.readlink(f"/dev/fd/{each}") for each in os.listdir("/dev/fd") if Path(f"/dev/fd/{each}").is_symlink()]
        assert not {os.readlink(f"/proc/{process}/fd/{each}") for each in (1, 2)} & {*own}
    finally:
        os.kill(process, signal.SIGKILL)


async def test_a_server_over_http_is_called_with_the_configured_headers_and_connected_again(directory: Directory) -> None:
    with over_http() as url:
        servers = directory.configure(web={"type": "remote", "url": url, "headers": {"x-team": "blue"}})
        assert (await call_tool(servers, "web", "headers", {})).text == "blue"
        assert (await call_tool(servers, "web", "add", {"a": 1, "b": 2})).text == "3"
        assert (await call_tool(servers, "web", "add", {"a": "no number"})).is_error
        assert (await (await servers.connection("web")).get_prompt("praise", {"name": "Ada"})).text == "Praise Ada"
        assert (await (await servers.connection("web")).read_resource("demo://motto")).text == "Sum of all"
        await call_tool(servers, "web", "grow", {})
        await directory.until_changed(2)
        assert "grown" in await directory.tools()
    with pytest.raises(McpFailure):
        await call_tool(servers, "web", "add", {"a": 1, "b": 2})
    await directory.until_changed(3)
    assert (await directory.status("web"))["status"] == "failed"
    with over_http(port=int(url.split(":")[2].partition("/")[0])):
        assert (await call_tool(servers, "web", "add", {"a": 1, "b": 2})).text == "3"
        await close(servers)


async def test_connections_share_the_certificates(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take 25 ms to load, on the event loop: a hundred servers of a project's held everybody up for 14 seconds."""
    system_tls()
    monkeypatch.delattr("httpcore2.default_ssl_context")
    directory.configure(web={"type": "remote", "url": "http://127.0.0.1:9/"})
    assert "connection" in (await directory.status("web"))["error"]


async def test_a_sign_in_that_is_over_while_its_connection_is_up_is_needed_again(directory: Directory) -> None:
    with over_http("oauth") as url:
        servers = directory.configure(web={"type": "remote", "url": url})
        page = await signing_in.start(servers, "web", "http://127.0.0.1:4096/mcp/oauth/callback")
        code = parse_qs(urlsplit(await visit(page)).query)["code"][0]
        assert (await signing_in.finish(servers, "web", code)).wire() == {"status": "connected"}
        await call_tool(servers, "web", "forget", {})
        with pytest.raises(McpFailure):
            await call_tool(servers, "web", "add", {"a": 1, "b": 2})
        assert await directory.status("web") == {"status": "needs_auth"}


# Servers that send too much are not read to the end: over HTTP, in a stream, as a program; answers, lists, sign-ins.

FLOOD = 60_000_000
TAKEN = 20_000_000
"""What stands in sockets, too, has been sent."""
SCHEMA = {"type": "object", "properties": {}}
Result = Callable[[], Chunks]


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BODY_BYTES", 500_000)
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 500_000)
    monkeypatch.setattr(client, "MAX_LISTED_BYTES", 300_000)


@pytest.fixture
def flood(low_limits: None) -> Iterator[Flood]:
    with flooding() as flood:
        yield flood


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


def blanks() -> Chunks:
    return repeated(b" ", FLOOD)


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("result", [long_text, blanks, tiny_values])
async def test_an_answer_that_is_too_much_fails_the_call(
    directory: Directory, flood: Flood, result: Result, in_stream: bool
) -> None:
    serve(flood, tools_call=result, in_stream=in_stream)
    servers = directory.configure(web=web(flood))
    with pytest.raises(McpFailure, match="values" if result is tiny_values and not in_stream else None):
        await call_tool(servers, "web", "echo", {})
    assert flood.sent < TAKEN
    serve(flood, in_stream=in_stream)
    assert (await call_tool(servers, "web", "echo", {})).text == "said"


async def test_a_compressed_answer_is_not_unpacked(directory: Directory, flood: Flood) -> None:
    serve(flood)
    servers = directory.configure(web=web(flood))
    await servers.statuses()
    assert {*flood.encodings} == {"identity"}
    flood.headers["content-encoding"] = "gzip"
    flood.send = lambda request: iter([gzip.compress(b" " * FLOOD)])
    with pytest.raises(McpFailure, match="compressed"):
        await call_tool(servers, "web", "echo", {})


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


async def test_a_program_s_line_has_a_bound(directory: Directory, low_limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = directory.configure(one=plain(timeout=2000))
    with pytest.raises(McpFailure, match="more than 500000 bytes"):
        await call_tool(servers, "one", "endless", {"megabytes": 20})
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 5_000_000)
    with pytest.raises(McpFailure):
        await call_tool(servers, "one", "tiny", {})
    assert (await call_tool(servers, "one", "echo", {"text": "again"})).text == "again"


async def test_an_answer_is_not_matched_against_patterns_of_its_server(directory: Directory) -> None:
    servers = directory.configure(one=plain("hostile-schema"))
    assert (await call_tool(servers, "one", "data", {})).text == json.dumps({"answer": "a" * 50 + "!"})


async def test_honest_answers_of_some_length_are_read(directory: Directory, flood: Flood) -> None:
    serve(flood, tools_call=lambda: long_text(100_000))
    servers = directory.configure(web=web(flood), one=plain())
    assert len((await call_tool(servers, "web", "echo", {})).text) >= 100_000
    assert (await call_tool(servers, "one", "echo", {"text": "y" * 400_000})).text == "y" * 400_000
