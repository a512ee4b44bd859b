"""Every method of the official SDK and of the newest one against a real server; TypeScript itself judges each answer by the SDKs'
own types.

The calls are in every_method.mjs and next_sdk.mjs. What they answered is written down as TypeScript constants, and the compiler
is asked whether they have the types that the SDK promises: a property that is missing, null or of another type is an error; what
is ours beside it is not.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from git_files import put_file
from running_server import RunningServer, serving_here

SURFACES = {"v1": "@opencode-ai/sdk", "v2": "@opencode-ai/sdk/v2", "newest": "opencode-sdk-next/v2"}
CONFIG = {"permission": {"bash": "ask"}, "command": {"greet": {"template": "long 3", "description": "Says what it can do"}}}

NOT_CALLED = {
    "provider.oauth.": "no provider here is signed in to with OAuth: tests/api/test_api_refusals.py",
    **dict.fromkeys(("auth.authenticate", "auth.callback", "auth.remove", "auth.start"), "v1: a second name for mcp.auth's"),
    "mcp.auth.set": "v1: a second name for auth.set",
}
"""What stands at the beginning of the methods that are not called, and why."""

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
"""Methods of the newest that answer an error here, and why."""

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
    "newest global.event server.connected": "it is of no directory, nor is OpenCode's",
    "newest global.event project.updated": "the same",
    "newest v2.event.subscribe server.instance.disposed": "OpenCode does not send it there; here every client hears of it",
    "newest v2.session.events session.next.*": "the types promise lines of text; OpenCode sends events, and so does this server",
    "newest v2.pty.connect": "the types know no error of a request that is no WebSocket's",
    "newest v2.fs.read": "a file's bytes, which the judge cannot write down",
}
"""Answers that are not as an SDK's types say, and why."""

JUDGE = """\
type Read<T> = T extends (infer Item)[] ? readonly Read<Item>[] : T extends object ? { readonly [K in keyof T]: Read<T[K]> } : T
type Settled<M> = M extends (...args: any[]) => infer R ? Awaited<R> : never
type DataOf<R> = R extends { stream: AsyncGenerator<infer E> } ? E : R extends { data: infer D } ? D : never
type FailureOf<R> = R extends { error: infer E } ? E : never
type Data<M> = DataOf<Settled<M>>
type Failure<M> = FailureOf<Settled<M>>
declare function has<T>(answer: Read<Exclude<T, undefined>>): void
"""


@dataclass(frozen=True)
class Seen:
    """What the program printed. `failures`, `stopped`: by the name of a scenario."""

    surface: str
    methods: list[str]
    answers: list[dict[str, Any]]
    scenarios: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    @property
    def is_newest(self) -> bool:
        return self.surface == "newest"


@pytest.fixture(scope="module", params=SURFACES)
def surface(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(surface: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    environment = {"OPENCODE_CONFIG_CONTENT": json.dumps(CONFIG), "SHELL": "/bin/sh"}
    with serving_here(tmp_path_factory.mktemp(surface), **environment) as running:
        skill = "---\nname: greeting\ndescription: How to greet\n---\nSay hello.\n"
        put_file(running.workspace / ".opencode" / "skill" / "greeting" / "SKILL.md", skill)
        if surface == "newest":
            (running.workspace / "*").write_text("the only file that v2.fs.read can name\n")
        yield running


@pytest.fixture(scope="module")
def seen(surface: str, server: RunningServer, node_modules: Path) -> Seen:
    program = ["next_sdk.mjs", server.base] if surface == "newest" else ["every_method.mjs", server.base, surface]
    command = ["node", *program, sys.executable]
    result = subprocess.run(command, cwd=node_modules, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return Seen(surface, **json.loads(result.stdout))


def test_every_method_is_called_or_named_with_a_reason_and_does_what_it_says(seen: Seen) -> None:
    wrong = {**seen.failures, **seen.stopped}
    assert wrong == {}, "\n".join(wrong.values())
    assert len(seen.methods) > 180 if seen.is_newest else seen.scenarios
    called, excused = {answer["method"] for answer in seen.answers}, () if seen.is_newest else tuple(NOT_CALLED)
    assert {method for method in set(seen.methods) - called if not method.startswith(excused)} == set()
    assert {method for method in called if method.startswith(excused)} == set()


@pytest.mark.parametrize("surface", ["newest"], indirect=True)
def test_every_method_is_answered_or_refused_with_a_reason(seen: Seen) -> None:
    errors = {answer["method"]: answer for answer in seen.answers if answer["status"] >= 400}
    assert {method: errors[method]["error"] for method in errors.keys() - REFUSED.keys()} == {}
    assert REFUSED.keys() - errors.keys() == set(), "these are answered now: delete their rows"
    assert [method for method, answer in errors.items() if answer["status"] >= 500] == []


def test_every_answer_has_the_sdks_types(seen: Seen, node_modules: Path, tmp_path: Path) -> None:
    lacking = {"method": "session.get", "status": 200, "data": {"title": None}}
    first, *others = complaints(seen, [lacking, *filter(judged(seen), seen.answers)], node_modules, tmp_path)
    assert "missing the following properties" in first, "an answer of another shape is complained about"
    told, of_all = {line.partition(":")[0]: line for line in others}, () if seen.is_newest else ("*",)
    expected = [pattern for pattern in OTHER_SHAPES if pattern.startswith((seen.surface, *of_all))]
    unexpected = [line for what, line in told.items() if not any(fnmatch(what, pattern) for pattern in expected)]
    assert unexpected == [], "\n".join(unexpected)
    needless = [pattern for pattern in expected if not any(fnmatch(what, pattern) for what in told)]
    assert needless == [], "these have the types now: delete their rows"


def judged(seen: Seen) -> Callable[[dict[str, Any]], bool]:
    """Not an empty answer, nor a heartbeat, which OpenCode's types do not know; of the newest's errors the second API's: the
    first one's have the shape of OpenCode 1.1."""

    def is_judged(answer: dict[str, Any]) -> bool:
        is_typed = answer["status"] != 204 and tag(answer.get("data")).strip() != "server.heartbeat"
        return is_typed and (not seen.is_newest or "error" not in answer or "_tag" in answer["error"])

    return is_judged


def test_the_calls_have_the_types_that_the_sdk_asks_for(node_modules: Path) -> None:
    assert compiled(node_modules) == []


# TypeScript's compiler as a judge.


def complaints(seen: Seen, answers: list[dict[str, Any]], node_modules: Path, directory: Path) -> list[str]:
    """What the compiler says. In front stands what about: `v2 session.get`, `v2 event.subscribe session.idle`."""
    lines = [
        f'import type {{ createOpencodeClient }} from "{SURFACES[seen.surface]}"',
        "type Client = ReturnType<typeof createOpencodeClient>",
        *JUDGE.splitlines(),
    ]
    distinct = {json.dumps(answer): answer for answer in answers}.values()
    lines += [line for number, answer in enumerate(distinct) for line in question(seen.surface, number, answer)]
    (directory / "answers.ts").write_text("\n".join(lines))
    (directory / "tsconfig.json").write_text((node_modules / "tsconfig.json").read_text().replace("*.mjs", "*.ts"))
    (directory / "node_modules").symlink_to(node_modules / "node_modules")
    return [
        re.sub(r"^answers\.ts\((\d+),\d+\)", lambda at: lines[int(at[1]) - 1].partition("// ")[2], line)
        for line in compiled(directory)
    ]


def question(name: str, number: int, answer: dict[str, Any]) -> tuple[str, str]:
    """The value has a name of its own: of a literal the compiler would also tell what it has beside what is asked for."""
    method = "".join(f'["{step}"]' for step in answer["method"].split("."))
    kind, value = ("Failure", answer["error"]) if "error" in answer else ("Data", answer["data"])
    constant = f"const a{number} = {json.dumps(value)} as const"
    return constant, f"has<{kind}<Client{method}>>(a{number}) // {name} {answer['method']}{tag(value)}"


def tag(value: Any) -> str:
    """An event's type, or a message's role."""
    found = value.get("payload", value).get("type") or value.get("info", {}).get("role") if isinstance(value, dict) else None
    return f" {found}" if found else ""


def compiled(project: Path) -> list[str]:
    """The compiler's complaints, each one line."""
    command = ["node_modules/.bin/tsc", "--pretty", "false", "--project", "."]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=180)
    return re.sub(r"\n +", " / ", result.stdout + result.stderr).splitlines()
