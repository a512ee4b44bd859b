"""An editor that speaks the Agent Client Protocol by the SDK's own client, with `opensession acp` as its child."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp import schema
from running_server import clean_environment, this_checkout

COMMAND = [sys.executable, "-m", "app.cli", "acp"]
SECONDS = 60
READS = schema.ClientCapabilities(fs=schema.FileSystemCapabilities(read_text_file=True))
FORMS = schema.ClientCapabilities(elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()))


def selected(option: str) -> schema.RequestPermissionResponse:
    return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=option))


@dataclass
class Editor:
    """What it was told and asked. `permits` answers a permission request; `buffers` are its open files."""

    permits: Callable[[schema.ToolCallUpdate, list[schema.PermissionOption]], Any] = lambda call, options: "once"
    form: dict[str, Any] | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    updates: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, schema.ToolCallUpdate, list[schema.PermissionOption]]] = field(default_factory=list)
    forms: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.changed.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((session_id, tool_call, options))
        self.changed.set()
        answer = self.permits(tool_call, options)
        return selected(await answer if asyncio.iscoroutine(answer) else answer)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append(mode)
        if self.form is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=self.form)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        self.read.append(path)
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.written.append(path)

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    # What there is to see.

    def of(self, kind: str, session_id: str | None = None) -> list[Any]:
        return [u for s, u in self.updates if u.session_update == kind and session_id in (None, s)]

    def text(self, kind: str = "agent_message_chunk", session_id: str | None = None) -> str:
        return "".join(update.content.text for update in self.of(kind, session_id) if update.content.type == "text")

    def kinds(self) -> list[str]:
        """Of the updates in their order, neighbours of one kind as one."""
        found: list[str] = []
        for _, update in self.updates:
            if not found or found[-1] != update.session_update:
                found.append(update.session_update)
        return found

    def calls(self) -> dict[str, dict[str, Any]]:
        """Each tool call as it stands after its updates."""
        found: dict[str, dict[str, Any]] = {}
        for _, update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                told = {name: value for name, value in update if value is not None}
                found.setdefault(update.tool_call_id, {}).update(told)
        return found

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := condition()):
                self.changed.clear()
                await self.changed.wait()
        return found


@dataclass
class Desk:
    """Where editors work: a directory, and a home with a data directory."""

    directory: Path
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return clean_environment(self.home, **this_checkout()[1], OPENSESSION_DATA_DIR=str(self.home / "data"), **self.variables)

    def script(self, *turns: list[dict[str, Any]]) -> None:
        path = self.home / "script.json"
        path.write_text(json.dumps({"turns": turns}))
        self.variables["OPENSESSION_SCRIPT"] = str(path)

    @asynccontextmanager
    async def editor(
        self, *options: str, editor: Editor | None = None, offers: schema.ClientCapabilities | None = None
    ) -> AsyncIterator[tuple[Any, Editor, Any]]:
        """The agent's side, the editor and the child, initialized."""
        editor = editor or Editor()
        log = (self.home / "acp.log").open("ab")
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *options,
            cwd=self.directory,
            env=self.environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=64 * 1024 * 1024,
        )
        agent = acp.connect_to_agent(editor, process.stdin, process.stdout, use_unstable_protocol=True)
        try:
            async with asyncio.timeout(SECONDS):
                await agent.initialize(protocol_version=1, client_capabilities=offers)
            yield agent, editor, process
        finally:
            await agent.close()
            assert process.stdin
            process.stdin.close()
            async with asyncio.timeout(SECONDS):
                await process.wait()
            log.close()

    def log(self) -> str:
        return (self.home / "acp.log").read_text()


@dataclass
class RawEditor:
    """One that writes lines of its own."""

    process: asyncio.subprocess.Process

    async def send(self, *lines: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        await self.process.stdin.drain()

    async def call(self, method: str, number: Any = 1, **params: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())

    async def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        async with asyncio.timeout(SECONDS):
            line = await self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
        return found

    async def answer_to(self, number: Any) -> dict[str, Any]:
        """What comes before it is passed over."""
        while (found := await self.answer()).get("id", ...) != number or "method" in found:
            pass
        return found


@asynccontextmanager
async def raw_editor(desk: Desk, *options: str) -> AsyncIterator[RawEditor]:
    with (desk.home / "acp.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *options,
            cwd=desk.directory,
            env=desk.environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            yield RawEditor(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def text(said: str) -> list[Any]:
    return [acp.text_block(said)]


def children_of(pid: int) -> list[int]:
    """The processes below it."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    direct = [int(word) for word in found.read_text().split()] if found.exists() else []
    return [*direct, *(below for child in direct for below in children_of(child))]


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}") and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
