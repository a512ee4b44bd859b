"""Every method of OpenCode's newest SDK against a real server; TypeScript judges each answer by the SDK's own types.

The calls are in next_sdk.mjs, which runs against OpenCode's own server too. What is ours beside what is promised is no error.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, serving, this_checkout
from typescript_judge import about, complaints, is_typed

SDK = "opencode-sdk-next/v2"

CONFIG = {
    "permission": {"bash": "ask"},
    "command": {"greet": {"template": "long 3", "description": "Says what it can do"}},
}

_OAUTH = "no provider here is signed in to with OAuth"
_SYNC = "there is no other server here to move sessions to or from"
_COPIES = "there are no copies of projects here: a worktree is one"
_WORKSPACES = "there are no workspaces here: a directory or a worktree is named instead"
_MCP = "the MCP server of this test takes no sign-in; OpenCode's answers so too"
_TERMINAL = "a terminal is connected to with a WebSocket, which the SDK does not open; OpenCode's refuses it too"

REFUSED = {
    "provider.oauth.authorize": _OAUTH,
    "provider.oauth.callback": _OAUTH,
    "v2.integration.connect.oauth": _OAUTH,
    "v2.integration.attempt.status": _OAUTH,
    "v2.integration.attempt.complete": _OAUTH,
    "experimental.console.switchOrg": "there are no accounts of OpenCode's console here",
    "experimental.workspace.create": _WORKSPACES,
    "experimental.workspace.remove": _WORKSPACES,
    "experimental.workspace.warp": _WORKSPACES,
    "experimental.projectCopy.generateName": _COPIES,
    "v2.projectCopy.create": _COPIES,
    "v2.projectCopy.remove": _COPIES,
    "sync.replay": _SYNC,
    "sync.steal": _SYNC,
    "sync.history.list": "the SDK sends no body, which OpenCode's refuses too",
    "mcp.auth.start": _MCP,
    "mcp.auth.authenticate": _MCP,
    "mcp.auth.callback": _MCP,
    "pty.connect": _TERMINAL,
    "v2.pty.connect": _TERMINAL,
}
"""Methods that answer an error here, and why."""

OTHER_SHAPES = {
    "global.event server.connected": "it is of no directory, nor is OpenCode's",
    "global.event project.updated": "the same",
    "v2.event.subscribe server.instance.disposed": "OpenCode does not send it there; here every client hears of it",
    "v2.session.events session.next.*": "the types promise lines of text; OpenCode sends events, and so does this server",
    "v2.pty.connect": "the types know no error of a request that is no WebSocket's",
    "v2.fs.read": "a file's bytes, which the judge cannot write down",
}
"""Answers that are not as the SDK's types say, and why."""


@dataclass(frozen=True)
class Seen:
    """What next_sdk.mjs printed. `stopped`: what kept a scenario from going on, by its name."""

    methods: list[str]
    answers: list[dict[str, Any]]
    stopped: dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    command, environment = this_checkout()
    environment |= {"OPENCODE_CONFIG_CONTENT": json.dumps(CONFIG), "SHELL": "/bin/sh"}
    with serving(command, tmp_path_factory.mktemp("newest"), environment) as running:
        skill = running.workspace / ".opencode" / "skill" / "greeting" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: greeting\ndescription: How to greet\n---\nSay hello.\n")
        (running.workspace / "*").write_text("the only file that v2.fs.read can name\n")
        yield running


@pytest.fixture(scope="module")
def seen(server: RunningServer, node_modules: Path) -> Seen:
    command = ["node", "next_sdk.mjs", server.base, sys.executable]
    result = subprocess.run(command, cwd=node_modules, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return Seen(**json.loads(result.stdout))


def test_every_method_is_called(seen: Seen) -> None:
    assert seen.stopped == {}, "\n".join(seen.stopped.values())
    assert set(seen.methods) == {answer["method"] for answer in seen.answers}
    assert len(seen.methods) > 180


def test_every_method_is_answered_or_refused_with_a_reason(seen: Seen) -> None:
    errors = {answer["method"]: answer for answer in seen.answers if answer["status"] >= 400}
    assert {method: errors[method]["error"] for method in errors.keys() - REFUSED.keys()} == {}
    assert REFUSED.keys() - errors.keys() == set(), "these are answered now: delete their rows"
    assert [method for method, answer in errors.items() if answer["status"] >= 500] == []


def test_every_answer_has_the_sdks_types(seen: Seen, node_modules: Path, tmp_path: Path) -> None:
    lacking = {"method": "session.get", "status": 200, "data": {"title": None}}
    answers = [lacking, *filter(is_judged, seen.answers)]
    first, *others = complaints("newest", SDK, answers, node_modules, tmp_path)
    assert "missing the following properties" in first, "an answer of another shape is complained about"
    told = {about(line).removeprefix("newest "): line for line in others}
    unexpected = [line for what, line in told.items() if not any(fnmatch(what, pattern) for pattern in OTHER_SHAPES)]
    assert unexpected == [], "\n".join(unexpected)
    needless = [pattern for pattern in OTHER_SHAPES if not any(fnmatch(what, pattern) for what in told)]
    assert needless == [], "these have the types now: delete their rows"


def is_judged(answer: dict[str, Any]) -> bool:
    """What is answered, and the second API's errors: the first one's have the shape of OpenCode 1.1."""
    return is_typed(answer) and ("error" not in answer or "_tag" in answer["error"])
