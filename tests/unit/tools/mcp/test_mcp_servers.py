"""The servers of one directory: real programs, most of them misbehaving in one way."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import over_http, plain, running
from own_announcements import announcing_to
from pydantic import TypeAdapter

from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import McpConfig
from app.schema.errors import NotFound
from app.schema.event import AnnouncedEvent, EventMcpToolsChanged
from app.tools.mcp.servers import McpServers, McpSettings
from app.tools.mcp.values import CredentialStore, McpFailure

CONFIG: TypeAdapter[McpConfig] = TypeAdapter(McpConfig)
PATIENCE = 60.0


class Directory:
    """Its servers and what was announced of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed: list[str] = []
        self._news = asyncio.Event()
        environment = {"PATH": os.environ["PATH"], "SHARED": "1"}
        settings = McpSettings(environment, OFF, CredentialStore(path / "data"), announcing_to(self._heard))
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
    monkeypatch.setattr("app.tools.mcp.servers.MOMENT", PATIENCE)


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    made = Directory(tmp_path)
    yield made
    await made.servers.close()
    assert not running(tmp_path)


def test_the_sdk_is_imported_only_where_a_server_is_configured() -> None:
    program = "import app.main, sys; sys.exit({'mcp', 'mcp_types', 'httpx2'} & {*sys.modules} != set())"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


async def test_a_server_s_tools_prompts_and_resources_are_offered(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    (offers,) = await servers.offers()
    echo = offers.tools[0]
    assert (echo.server, echo.name, echo.description) == ("plain", "echo", "Says it again")
    assert echo.schema == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert [(prompt.name, prompt.arguments) for prompt in offers.prompts] == [("greet", ("name", "how"))]
    notes = offers.resources[0]
    assert (notes.name, notes.uri, notes.mime) == ("notes", "demo://notes", "application/json")
    assert directory.changed == ["plain"]


@pytest.mark.parametrize(
    ("entry", "status", "says"),
    [
        ({"type": "local", "command": ["/nowhere/at-all"]}, "failed", "could not be started"),
        ({"type": "local", "command": ["sh", "-c", "echo no key given >&2; exit 3"]}, "failed", "no key given"),
        ({"type": "local", "command": ["yes"]}, "failed", "not JSON-RPC"),
        (plain("deaf", timeout=300), "failed", "within 0.3 s"),
        ({"type": "remote", "url": "http://127.0.0.1:9/mcp"}, "failed", "failed"),
        (plain(enabled=False), "disabled", ""),
        (plain("greeting"), "connected", ""),
    ],
    ids=["missing", "ends", "garbage", "deaf", "unreachable", "switched off", "greets first"],
)
async def test_what_becomes_of_a_server_is_its_status(
    directory: Directory, entry: dict[str, Any], status: str, says: str
) -> None:
    directory.configure(one=entry)
    found = await directory.status("one")
    assert found["status"] == status and says in found.get("error", ""), found


async def test_a_program_works_in_the_directory_that_cwd_names(directory: Directory) -> None:
    (directory.path / "tools").mkdir()
    program = {"type": "local", "command": ["sh", "-c", "pwd >&2; exit 3"]}
    directory.configure(inside={**program, "cwd": "tools"}, named={**program, "cwd": str(directory.path / "tools")})
    statuses = await directory.servers.statuses()
    assert [status.wire()["error"].endswith(f"It said: {directory.path}/tools") for status in statuses.values()] == [True, True]


@pytest.mark.parametrize(("cwd", "says"), [("..", "is not in"), ("way-out", "is not in"), ("gone", "there is no directory")])
async def test_a_cwd_that_is_outside_or_not_there_is_refused(directory: Directory, cwd: str, says: str) -> None:
    (directory.path / "way-out").symlink_to("/")
    directory.configure(one=plain(cwd=cwd))
    found = await directory.status("one")
    assert found["status"] == "failed" and says in found["error"] and found["error"].startswith("cwd: "), found


async def test_a_server_that_fails_leaves_the_others_alone(directory: Directory) -> None:
    directory.configure(bad={"type": "local", "command": ["false"]}, good=plain())
    assert "echo" in await directory.tools()
    assert (await directory.status("good"), (await directory.status("bad"))["status"]) == ({"status": "connected"}, "failed")


async def test_a_call_that_is_cancelled_returns_at_once_and_the_server_goes_on(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    await servers.statuses()
    hanging = asyncio.create_task(servers.call_tool("plain", "hang", {}))
    echo = await servers.call_tool("plain", "echo", {"text": "meanwhile"})
    began = time.monotonic()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert time.monotonic() - began < 20
    assert (echo.text, (await servers.call_tool("plain", "echo", {"text": "after"})).text) == ("meanwhile", "after")


async def test_a_call_to_a_server_that_reads_nothing_is_cancelled_at_once_too(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    await servers.statuses()
    (process,) = running(directory.path)
    os.kill(process, signal.SIGSTOP)
    stuck = [asyncio.create_task(servers.call_tool("plain", "echo", {"text": "x" * 500_000})) for _ in range(3)]
    await asyncio.wait(stuck, timeout=0.3)
    began = time.monotonic()
    for call in stuck:
        call.cancel()
    await asyncio.wait(stuck)
    assert time.monotonic() - began < 20 and all(call.cancelled() for call in stuck)
    os.kill(process, signal.SIGCONT)
    assert (await servers.call_tool("plain", "echo", {"text": "goes on"})).text == "goes on"


async def test_a_call_that_takes_too_long_fails_unless_it_reports_progress(directory: Directory) -> None:
    servers = directory.configure(plain=plain(timeout=700))
    with pytest.raises(McpFailure, match=r"has not answered for 0\.7 s"):
        await servers.call_tool("plain", "hang", {})
    began = time.monotonic()
    assert (await servers.call_tool("plain", "work", {})).text == "worked"
    assert time.monotonic() - began > 1


async def test_a_server_that_dies_in_a_call_is_connected_again_when_next_used(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    with pytest.raises(McpFailure, match=r"ended\. It said: goodbye"):
        await servers.call_tool("plain", "die", {})
    await directory.until_changed(2)
    assert await directory.status("plain") == {"status": "failed", "error": "The server ended. It said: goodbye"}
    assert "echo" in await directory.tools()
    assert await directory.status("plain") == {"status": "connected"}


async def test_a_call_itself_connects_a_lost_server_again(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    with pytest.raises(McpFailure):
        await servers.call_tool("plain", "die", {})
    assert (await servers.call_tool("plain", "echo", {"text": "back"})).text == "back"


async def test_a_server_that_never_connected_is_tried_again_only_on_request(directory: Directory) -> None:
    program = directory.path / "server"
    servers = directory.configure(late={"type": "local", "command": [str(program)]})
    assert (await directory.status("late"))["status"] == "failed"
    program.write_text(f"#!/bin/sh\nexec {' '.join(plain()['command'])}\n")
    program.chmod(0o755)
    assert not await directory.tools()
    await servers.connect("late")
    assert "echo" in await directory.tools()


async def test_a_change_of_tools_is_heard_and_announced(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    await servers.call_tool("plain", "grow", {})
    await directory.until_changed(2)
    assert "grown" in await directory.tools()


async def test_a_disconnected_server_offers_nothing_until_it_is_connected(directory: Directory) -> None:
    servers = directory.configure(plain=plain())
    assert await directory.tools()
    await servers.disconnect("plain")
    assert (await directory.status("plain"), await directory.tools()) == ({"status": "disabled"}, set())
    assert not running(directory.path)
    with pytest.raises(McpFailure, match="not connected"):
        await servers.call_tool("plain", "echo", {"text": "x"})
    await servers.connect("plain")
    assert "echo" in await directory.tools()
    with pytest.raises(NotFound):
        await servers.disconnect("other")


async def test_only_what_changed_in_the_configuration_is_connected_anew(directory: Directory) -> None:
    servers = directory.configure(kept=plain(), changed=plain(), gone=plain())
    await servers.add("added", CONFIG.validate_python(plain()))  # type: ignore[arg-type]
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
    assert (await before.call_tool("gone", "echo", {"text": "x"})).text == "x", "what uses the first set goes on with it"
    connection = before.find("kept").connection
    await before.close()
    assert len(running(directory.path)) == 1 and after.find("kept").connection is connection
    await after.close()
    assert not running(directory.path)
    before.start()
    assert (await before.call_tool("gone", "echo", {"text": "x"})).text == "x", "a set may be started again"


async def test_closing_ends_the_programs_also_those_that_are_still_connecting(directory: Directory) -> None:
    servers = directory.configure(up=plain(), deaf=plain("deaf"))
    await servers.connect("up")
    assert len(running(directory.path)) == 2
    began = time.monotonic()
    await servers.close()
    assert time.monotonic() - began < 20 and not running(directory.path)


async def test_a_program_sees_the_shared_environment_and_its_own(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    servers = directory.configure(plain=plain(environment={"OWN": "1"}))
    seen = (await servers.call_tool("plain", "environment", {})).text.split()
    assert {"PATH", "SHARED", "OWN"} <= set(seen) and "ANTHROPIC_API_KEY" not in seen


async def test_a_server_over_http_is_called_with_the_configured_headers_and_tells_of_changes(directory: Directory) -> None:
    with over_http() as url:
        servers = directory.configure(web={"type": "remote", "url": url, "headers": {"x-team": "blue"}})
        assert (await servers.call_tool("web", "headers", {})).text == "blue"
        assert (await servers.call_tool("web", "add", {"a": 1, "b": 2})).text == "3"
        assert (await servers.call_tool("web", "add", {"a": "no number"})).is_error
        assert (await servers.prompt("web", "praise", {"name": "Ada"})).text == "Praise Ada"
        assert (await servers.resource("web", "demo://motto")).text == "Sum of all"
        await servers.call_tool("web", "grow", {})
        await directory.until_changed(2)
        assert "grown" in await directory.tools()
        await servers.close()


async def test_a_server_over_http_that_was_gone_is_connected_again(directory: Directory) -> None:
    with over_http() as url:
        servers = directory.configure(web={"type": "remote", "url": url})
        assert "add" in await directory.tools()
    with pytest.raises(McpFailure):
        await servers.call_tool("web", "add", {"a": 1, "b": 2})
    await directory.until_changed(2)
    assert (await directory.status("web"))["status"] == "failed"
    with over_http(port=int(url.split(":")[2].partition("/")[0])):
        assert (await servers.call_tool("web", "add", {"a": 1, "b": 2})).text == "3"
        await servers.close()
