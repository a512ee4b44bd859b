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

import pytest
from acp_editor import SECONDS, Desk, Editor
from beside import differences
from launcher import opensession
from long_form import LONG
from model_server import ModelServer, Pause, Reasoning, model_server
from opencode_program import OFFLINE, installed, offline_home
from polling import until
from running_server import new_workspace

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
    editor: Editor
    model: ModelServer
    workspace: Path

    def file(self, name: str) -> str:
        return str(self.workspace / name)

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
async def side(command: list[str], directory: Path, reply: str) -> AsyncIterator[Side]:
    workspace, home = new_workspace(directory / "workspace"), offline_home(directory / "home")
    desk = Desk(workspace, home, {**OFFLINE, "SHELL": "/bin/sh"}, command=command)
    with model_server() as model:
        config = {**model.config(), "share": "disabled", "permission": {"bash": "ask", "edit": "ask"}}
        (workspace / "opencode.json").write_text(json.dumps(config))
        async with desk.session(replies=[reply]) as editor:
            yield Side(editor, model, workspace)
            editor.process.kill()


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
    return side.facts(await side.editor.say("Go"))


async def rejected(side: Side) -> Facts:
    side.model.play([PAUSE, ("bash", {"command": "touch made", "description": "Makes a file"})], ["So not."])
    facts = side.facts(await side.editor.say("Go"))
    return facts | {"made": (side.workspace / "made").exists()}


async def question(side: Side) -> Facts:
    asked = {"question": "Which?", "header": "Choice", "options": [{"label": "A", "description": "a"}]}
    side.model.play([PAUSE, ("question", {"questions": [asked]})], ["So be it."])
    return side.facts(await side.editor.say("Go"))


async def cancelled(side: Side) -> Facts:
    side.model.play(["I begin.", PAUSE, ("bash", {"command": "touch begun; sleep 600", "description": "Sleeps"})])
    prompt = side.editor.begin("Go")
    await until((side.workspace / "begun").exists)
    await side.editor.agent.cancel(session_id=side.editor.session)
    return side.facts(await prompt)


async def loaded(side: Side) -> Facts:
    """What is replayed of a turn."""
    side.model.play([Reasoning("Let me look."), "I read it.", PAUSE, ("read", {"filePath": side.file("a.txt")})], ["Done."])
    await side.editor.say("Read it")
    side.editor.updates.clear()
    async with asyncio.timeout(SECONDS):
        await side.editor.load(side.workspace, side.editor.session)
    return side.facts("")


SCENARIOS: dict[str, tuple[Callable[[Side], Awaitable[Facts]], str]] = {
    "turn": (turn, "once"),
    "rejected": (rejected, "reject"),
    "question": (question, "0"),
    "cancelled": (cancelled, "once"),
    "loaded": (loaded, "once"),
}


async def test_what_is_told_and_asked_is_otherwise_only_for_a_reason(node_modules: Path, tmp_path: Path) -> None:
    opencode = os.environ.get("OPENCODE_PROGRAM") or str(installed(node_modules))
    found = {}
    for name, (scenario, reply) in SCENARIOS.items():
        told = []
        for where, command in (("there", [opencode, "acp"]), ("here", [opensession(), "acp"])):
            async with side(command, tmp_path / name / where, reply) as asked:
                told.append(await scenario(asked))
        found |= {each.place: str(each) for each in differences(*told, name)}
    unexplained = [said for place, said in found.items() if not any(fnmatch(place, known) for known in DIFFERENCES)]
    assert not unexplained, "\n".join(unexplained)
    assert [known for known in DIFFERENCES if not any(fnmatch(place, known) for place in found)] == [], "no difference any more"
