"""`opensession acp` beside OpenCode 1.18.33's own `opencode acp`, for one editor and one scripted model: what is told and asked,
and in which order.

For the long form. OPENCODE_PROGRAM names OpenCode's binary; else npm installs it.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import acp
import pytest
from acp_editor import COMMAND, SECONDS, Editor, text
from beside import differences
from long_form import LONG
from model_server import ModelServer, Pause, Reasoning, model_server
from opencode_program import OFFLINE, installed, offline_home
from running_server import clean_environment, new_workspace, this_checkout

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

Facts = dict[str, Any]
PAUSE = Pause(0.4)
BESIDE = {"available_commands_update", "session_info_update", "usage_update", "current_mode_update", "config_option_update"}
"""Updates that have no place in a turn."""

DIFFERENCES = {
    "*.asked.*.1.length": "a permission request says why it is asked, behind the diff",
    "turn.calls.call 2.shown*": "a call that edits shows its diff alone",
    "turn.calls.call 3.*": "to-dos are the plan, and their call shows nothing of its own",
    "turn.order*": "the plan, which OpenCode does not send",
    "turn.written.length": "files are written by the server alone",
    "question.asked.length": "OpenCode has no questions for editors",
    "cancelled.calls.*.states.2": "an aborted command is a failed call",
    "loaded.calls.*.states*": "a call that is replayed is told once, as it ended",
}
"""By scenario and place: what is otherwise here, and why."""


@dataclass
class Side:
    agent: Any
    editor: Editor
    model: ModelServer
    workspace: Path

    def file(self, name: str) -> str:
        return str(self.workspace / name)

    async def session(self) -> str:
        return str((await self.agent.new_session(cwd=str(self.workspace), mcp_servers=[])).session_id)

    async def prompt(self, session_id: str, said: str = "Go") -> str:
        async with asyncio.timeout(SECONDS):
            return str((await self.agent.prompt(session_id=session_id, prompt=text(said))).stop_reason)

    def facts(self, stop: str) -> Facts:
        """What was told since the last time; a call is named by its number."""
        told = [update for _, update in self.editor.updates if update.session_update not in BESIDE]
        calls = {call: f"call {number}" for number, call in enumerate(self.editor.calls())}
        order = [calls.get(getattr(update, "tool_call_id", ""), update.session_update) for update in told]
        return {
            "stop": stop,
            "order": _order(order),
            "calls": {calls[call]: _call(each, told) for call, each in self.editor.calls().items()},
            "texts": {kind: self.editor.text(kind) for kind in order if kind.endswith("_chunk")},
            "asked": [[c.kind, _types(c.content), [one.kind for one in options]] for _, c, options in self.editor.asked],
            "written": [Path(path).name for path in self.editor.written],
        }


def _order(names: list[str]) -> list[str]:
    """Texts by their runs, calls by their beginnings."""
    found: list[str] = []
    for name in names:
        if name not in (found[-1:] if name.endswith("_chunk") else found):
            found.append(name)
    return found


def _call(call: Facts, told: list[Any]) -> Facts:
    states = [update.status for update in told if getattr(update, "tool_call_id", None) == call["tool_call_id"]]
    return {"kind": call["kind"], "states": list(dict.fromkeys(states)), "shown": _types(call.get("content"))}


def _types(content: Any) -> list[str]:
    return [each.type for each in content or []]


@asynccontextmanager
async def side(command: list[str], variables: dict[str, str], directory: Path, permits: str) -> AsyncIterator[Side]:
    home = directory / "home"
    home.mkdir(parents=True)
    with model_server() as model, (directory / "acp.log").open("wb") as log:
        workspace = new_workspace(directory / "workspace")
        config = {**model.config(), "share": "disabled", "permission": {"bash": "ask", "edit": "ask"}}
        (workspace / "opencode.json").write_text(json.dumps(config))
        editor = Editor(permits=lambda call, options: permits)
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=workspace,
            env=clean_environment(offline_home(home), **variables, SHELL="/bin/sh"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=64 * 1024 * 1024,
        )
        agent = acp.connect_to_agent(editor, process.stdin, process.stdout, use_unstable_protocol=True)
        try:
            async with asyncio.timeout(SECONDS):
                await agent.initialize(protocol_version=1)
            yield Side(agent, editor, model, workspace)
        finally:
            process.kill()
            await agent.close()
            await process.wait()


# What the model does, and the editor.


async def turn(side: Side) -> Facts:
    """Reasoning, two tools at once, a diff, permissions."""
    path = side.file("a.txt")
    both = [("read", {"filePath": path}), ("bash", {"command": "echo hi", "description": "Says hi"})]
    side.model.play(
        [Reasoning("Let me look."), "Both at once.", PAUSE, *both],
        [PAUSE, ("edit", {"filePath": path, "oldString": "hello", "newString": "goodbye"})],
        [PAUSE, ("todowrite", {"todos": [{"id": "1", "content": "First", "status": "pending", "priority": "high"}]})],
        ["Done."],
    )
    return side.facts(await side.prompt(await side.session()))


async def rejected(side: Side) -> Facts:
    side.model.play([PAUSE, ("bash", {"command": "touch made", "description": "Makes a file"})], ["So not."])
    facts = side.facts(await side.prompt(await side.session()))
    return facts | {"made": (side.workspace / "made").exists()}


async def question(side: Side) -> Facts:
    asked = {"question": "Which?", "header": "Choice", "options": [{"label": "A", "description": "a"}]}
    side.model.play([PAUSE, ("question", {"questions": [asked]})], ["So be it."])
    return side.facts(await side.prompt(await side.session()))


async def cancelled(side: Side) -> Facts:
    session_id = await side.session()
    side.model.play(["I begin.", PAUSE, ("bash", {"command": "touch begun; sleep 600", "description": "Sleeps"})])
    prompt = asyncio.create_task(side.prompt(session_id))
    async with asyncio.timeout(SECONDS):
        while not (side.workspace / "begun").exists():
            await asyncio.sleep(0.05)
    await side.agent.cancel(session_id=session_id)
    return side.facts(await prompt)


async def loaded(side: Side) -> Facts:
    """What is replayed of a turn."""
    session_id = await side.session()
    side.model.play([Reasoning("Let me look."), "I read it.", PAUSE, ("read", {"filePath": side.file("a.txt")})], ["Done."])
    await side.prompt(session_id, "Read it")
    side.editor.updates.clear()
    async with asyncio.timeout(SECONDS):
        await side.agent.load_session(cwd=str(side.workspace), session_id=session_id, mcp_servers=[])
    return side.facts("")


SCENARIOS: dict[str, tuple[Callable[[Side], Awaitable[Facts]], str]] = {
    "turn": (turn, "once"),
    "rejected": (rejected, "reject"),
    "question": (question, "0"),
    "cancelled": (cancelled, "once"),
    "loaded": (loaded, "once"),
}


@pytest.fixture(scope="module")
def opencode(node_modules: Path) -> str:
    return os.environ.get("OPENCODE_PROGRAM") or str(installed(node_modules))


async def test_what_is_told_and_asked_is_otherwise_only_for_a_reason(opencode: str, tmp_path: Path) -> None:
    found = {}
    for name, (scenario, permits) in SCENARIOS.items():
        async with side([opencode, "acp"], OFFLINE, tmp_path / name / "there", permits) as there:
            theirs = await scenario(there)
        async with side(COMMAND, this_checkout()[1], tmp_path / name / "here", permits) as here:
            ours = await scenario(here)
        found |= {each.place: str(each) for each in differences(theirs, ours, name)}
    unexplained = [said for place, said in found.items() if not any(fnmatch(place, known) for known in DIFFERENCES)]
    assert not unexplained, "\n".join(unexplained)
    assert [known for known in DIFFERENCES if not any(fnmatch(place, known) for place in found)] == [], "no difference any more"
