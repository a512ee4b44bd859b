"""An editor that speaks the Agent Client Protocol by the SDK's own client, with `opensession acp` as its child."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp import schema
from launcher import opensession, pid_of
from running_server import clean_environment, this_checkout
from turns import bash, call, say

SECONDS = 60
READS = schema.ClientCapabilities(fs=schema.FileSystemCapabilities(read_text_file=True))
TERMINAL = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
FORMS = schema.ClientCapabilities(elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities()))

COLOURS = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
LOOKS = [
    {"reasoning": "Two words stand there."},
    say("I read it and ask the shell."),
    call("read", filePath="a.txt"),
    call("bash", command="echo hi", description="Says hi"),
]
EDITS = [call("edit", filePath="a.txt", oldString="hello", newString="goodbye")]
ASKS = [call("question", questions=[{"question": "Which colour?", "header": "Colour", "options": COLOURS}])]
SLEEPS = [say("I begin."), bash("touch begun; sleep 600")]
"""Turns of the model, for editors that are driven by their keys."""

SCREENS = os.environ.get("OPENSESSION_TEST_SCREENS")


def keep(name: str, screen: str) -> None:
    """For people to look at, where OPENSESSION_TEST_SCREENS names a directory."""
    if SCREENS:
        Path(SCREENS).mkdir(parents=True, exist_ok=True)
        lines = [line.rstrip() for line in screen.splitlines()]
        Path(SCREENS, f"{name}.txt").write_text("\n".join(lines).strip("\n") + "\n")


def stand_in_order(screen: str, *texts: str) -> bool:
    places = [screen.find(text) for text in texts]
    return -1 not in places and places == sorted(places)


@dataclass
class Editor:
    """What it was told and asked. `replies` are to permission requests, the last to all that follow; `buffers` are its open
    files. One that `withholds` answers nothing before `answers` is set."""

    replies: list[str] = field(default_factory=lambda: ["once"])
    withholds: bool = False
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    form: dict[str, Any] | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    updates: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, schema.ToolCallUpdate, list[schema.PermissionOption]]] = field(default_factory=list)
    forms: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    session: str = ""
    """The one that it has made or opened last."""
    agent: Any = None
    process: Any = None

    # What it does.

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def new(self, directory: Path, *servers: Any) -> str:
        self.session = (await self.agent.new_session(cwd=str(directory), mcp_servers=list(servers))).session_id
        return self.session

    async def load(self, directory: Path, session_id: str) -> Any:
        self.session = session_id
        return await self.agent.load_session(cwd=str(directory), session_id=session_id, mcp_servers=[])

    async def say(self, said: str, *blocks: Any) -> str:
        """Why the turn stopped."""
        async with asyncio.timeout(2 * SECONDS):
            answer = await self.agent.prompt(session_id=self.session, prompt=[acp.text_block(said), *blocks])
        return str(answer.stop_reason)

    def begin(self, said: str) -> "asyncio.Task[str]":
        return asyncio.create_task(self.say(said))

    # What the agent asks of it.

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.changed.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((session_id, tool_call, options))
        self.changed.set()
        if self.withholds:
            await self.answers.wait()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return schema.RequestPermissionResponse(outcome=schema.AllowedOutcome(outcome="selected", option_id=reply))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append(mode)
        if self.form is None:
            return schema.DeclineElicitationResponse(action="decline")
        return schema.AcceptElicitationResponse(action="accept", content=self.form)

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        self.read.append(path)
        if self.withholds:
            await self.answers.wait()
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return schema.ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.written.append(path)

    # What there is to see.

    def of(self, kind: str, session_id: str | None = None) -> list[Any]:
        return [u for s, u in self.updates if u.session_update == kind and session_id in (None, s)]

    def text(self, kind: str = "agent_message_chunk", session_id: str | None = None) -> str:
        return "".join(update.content.text for update in self.of(kind, session_id) if update.content.type == "text")

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
    """Where editors work: a directory, and a home with a data directory. `options` and `variables` are the agent's."""

    directory: Path
    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    command: list[str] = field(default_factory=lambda: [opensession(), "acp"])

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)

    def beside(self, workspace: Path, base: str) -> "Desk":
        """Attached to a server."""
        return Desk(workspace, self.home, {}, ("--attach", base))

    def environment(self) -> dict[str, str]:
        return clean_environment(self.home, **this_checkout()[1], OPENSESSION_DATA_DIR=str(self.home / "data"), **self.variables)

    def script(self, *turns: list[dict[str, Any]]) -> None:
        path = self.home / "script.json"
        path.write_text(json.dumps({"turns": turns}))
        self.variables["OPENSESSION_SCRIPT"] = str(path)

    def log(self) -> str:
        return (self.home / "acp.log").read_text()

    @asynccontextmanager
    async def child(self, limit: int = 2**16) -> AsyncIterator[Any]:
        """The agent's process, which is killed in the end unless it has ended. `limit`: of what is read before it is wanted."""
        with (self.home / "acp.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                *self.options,
                cwd=self.directory,
                env=self.environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=limit,
            )
            try:
                yield process
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    @asynccontextmanager
    async def editor(self, editor: Editor | None = None, offers: Any = None, **traits: Any) -> AsyncIterator[Any]:
        """Initialized, with the agent's process as its `process`. Its end is the agent's."""
        editor = editor or Editor(**traits)
        async with self.child(2**26) as editor.process:
            editor.agent = acp.connect_to_agent(editor, editor.process.stdin, editor.process.stdout, use_unstable_protocol=True)
            try:
                async with asyncio.timeout(SECONDS):
                    await editor.agent.initialize(protocol_version=1, client_capabilities=offers)
                yield editor
            finally:
                editor.answers.set()
                await editor.agent.close()
                editor.process.stdin.close()
                async with asyncio.timeout(SECONDS):
                    await editor.process.wait()

    @asynccontextmanager
    async def session(self, **traits: Any) -> AsyncIterator[Any]:
        """An editor with a new session."""
        async with self.editor(**traits) as editor:
            await editor.new(self.directory)
            yield editor

    @asynccontextmanager
    async def raw_editor(self) -> AsyncIterator["RawEditor"]:
        async with self.child() as process:
            yield RawEditor(process, self.directory)


@dataclass
class RawEditor:
    """One that writes lines of its own."""

    process: asyncio.subprocess.Process
    directory: Path

    async def send(self, *lines: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        await self.process.stdin.drain()

    async def call(self, method: str, number: Any = 1, **params: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())

    async def initialize(self, number: int = 1) -> dict[str, Any]:
        await self.call("initialize", number, protocolVersion=1)
        return (await self.answer_to(number))["result"]

    async def prompt(self, said: str) -> str:
        """Request 3, in a new session; its id."""
        await self.initialize()
        await self.call("session/new", 2, cwd=str(self.directory), mcpServers=[])
        session_id: str = (await self.answer_to(2))["result"]["sessionId"]
        await self.call("session/prompt", 3, sessionId=session_id, prompt=[{"type": "text", "text": said}])
        return session_id

    async def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        async with asyncio.timeout(SECONDS):
            line = await self.process.stdout.readline()
        return json.loads(line)

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message that it holds for; what comes before is passed over."""
        while not condition(found := await self.answer()):
            pass
        return found

    async def answer_to(self, number: Any) -> dict[str, Any]:
        return await self.until(lambda found: found.get("id", ...) == number and "method" not in found)

    async def asked(self) -> dict[str, Any]:
        return await self.until(lambda found: found.get("method") == "session/request_permission")

    async def ended(self) -> int:
        """Its agent's exit code."""
        async with asyncio.timeout(30):
            return await self.process.wait()

    def hang_up(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def stop_reading(self) -> None:
        """Its end of the pipe is closed."""
        self.process._transport.get_pipe_transport(1).close()


def children_of(pid: int) -> list[int]:
    """The processes below it."""
    pid = pid_of(pid)
    found = Path(f"/proc/{pid}/task/{pid}/children")
    direct = [int(word) for word in found.read_text().split()] if found.exists() else []
    return [*direct, *(below for child in direct for below in children_of(child))]


def are_gone(pids: list[int]) -> bool:
    return all(not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in pids)
