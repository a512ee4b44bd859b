"""Every method of the official SDK against a real server; TypeScript itself judges each answer by the SDK's own types.

The calls are in every_method.mjs. What they answered is written down as TypeScript constants, and the compiler is asked whether
they have the types that the SDK promises: a property that is missing, null or of another type is an error; what is ours beside it
is not.
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
from typescript_judge import about, compiled, complaints, is_typed

SURFACES = {"v1": "@opencode-ai/sdk", "v2": "@opencode-ai/sdk/v2"}

CONFIG = {
    "permission": {"bash": "ask"},
    "command": {"greet": {"template": "long 3", "description": "Says what it can do"}},
}

NOT_CALLED = {
    "provider.oauth.": "no provider here is signed in to with OAuth: tests/api/test_api_refusals.py",
    **dict.fromkeys(("auth.authenticate", "auth.callback", "auth.remove", "auth.start"), "v1: a second name for mcp.auth's"),
    "mcp.auth.set": "v1: a second name for auth.set",
}
"""What stands at the beginning of the methods that are not called, and why."""

OTHER_SHAPES = {
    "* session.shell assistant": "the types promise the message alone; OpenCode sends it with its parts, and so does this server",
    "* session.prompt user": "with `noReply` the user's message is the answer, as it is OpenCode's",
    "* provider.list": "the types promise the catalogue's shape; OpenCode sends providers as in config.providers",
    "* global.event server.connected": "it is of no directory, nor is OpenCode's",
    "* global.event project.updated": "it is of no directory, nor is OpenCode's",
    "* pty.connect": "the SDK makes no WebSocket of it, so it is told to",
    "v1 app.agents": "the types are of an older OpenCode: `builtIn` is `native` since",
    "v1 *.* permission.asked": "the types are of an older OpenCode: it was `permission.updated`",
    "v1 *.* permission.replied": "the types are of an older OpenCode: `permissionID` is `requestID` since",
    "v1 *.* mcp.tools.changed": "the types are of an older OpenCode that did not have it",
}
"""Answers that are not as the SDK's types say, and why."""


@dataclass(frozen=True)
class Seen:
    """What every_method.mjs printed."""

    surface: str
    methods: list[str]
    answers: list[dict[str, Any]]
    scenarios: list[str]
    failures: dict[str, str]

    @property
    def called(self) -> set[str]:
        return {answer["method"] for answer in self.answers}


@pytest.fixture(scope="module", params=SURFACES)
def surface(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(surface: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp(surface)
    command, environment = this_checkout()
    environment |= {"OPENCODE_CONFIG_CONTENT": json.dumps(CONFIG), "SHELL": "/bin/sh"}
    with serving(command, directory, environment) as running:
        skill = running.workspace / ".opencode" / "skill" / "greeting" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text("---\nname: greeting\ndescription: How to greet\n---\nSay hello.\n")
        yield running


@pytest.fixture(scope="module")
def seen(surface: str, server: RunningServer, node_modules: Path) -> Seen:
    command = ["node", "every_method.mjs", server.base, surface, sys.executable]
    result = subprocess.run(command, cwd=node_modules, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    return Seen(surface, **json.loads(result.stdout))


def test_every_call_does_what_it_says(seen: Seen) -> None:
    assert seen.scenarios
    assert seen.failures == {}, "\n".join(seen.failures.values())


def test_every_method_is_called_or_named_with_a_reason(seen: Seen) -> None:
    not_called = set(seen.methods) - seen.called
    assert {method for method in not_called if not method.startswith(tuple(NOT_CALLED))} == set()
    assert {method for method in seen.called if method.startswith(tuple(NOT_CALLED))} == set()


def test_every_answer_has_the_sdks_types(seen: Seen, node_modules: Path, tmp_path: Path) -> None:
    lacking = {"method": "session.get", "status": 200, "data": {"title": None}}
    first, *others = complaints(
        seen.surface, SURFACES[seen.surface], [lacking, *filter(is_typed, seen.answers)], node_modules, tmp_path
    )
    assert "missing the following properties" in first, "an answer of another shape is complained about"
    expected = [pattern for pattern in OTHER_SHAPES if pattern.startswith((seen.surface, "*"))]
    unexpected = [line for line in others if not any(fnmatch(about(line), pattern) for pattern in expected)]
    assert unexpected == [], "\n".join(unexpected)
    assert [pattern for pattern in expected if not any(fnmatch(about(line), pattern) for line in others)] == []


def test_the_calls_have_the_types_that_the_sdk_asks_for(node_modules: Path) -> None:
    assert compiled(node_modules) == []
