"""Commands, paths and links that try to get past the rules, called by a model in whole turns: none may run, be it that a rule
forbids it or that a person, who is asked, says no. What ran shows on the disk."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_tricks import FILE_TOOLS, FORBIDDEN, GUARDED_EDITS, GUARDED_READS, ORDINARY, OUTSIDE
from long_form import LONG
from running_app import RunningApp, make_workspace, running_app
from turns import bash, pending, say, tools, until

from app.provider.base import ModelRequest
from app.provider.scripted.adapter import Call, Say, ScriptedProvider, ScriptedStep

Figure = Callable[[str], None]

EACH_COMMAND, EACH_CALL = (1, 1) if LONG else (16, 4)
"""The short form takes one of so many."""
SECRET = "SECRET"
PROGRAMS = {
    **dict.fromkeys(("busybox", "doas"), 'exec "$@"'),
    **dict.fromkeys(("uv", "poetry", "fd"), 'shift; exec "$@"'),
    **dict.fromkeys(("npx", "su"), 'exec sh -c "$2"'),
    "sudo": 'while case $1 in -n | --) ;; -u) shift ;; *=*) export "$1" ;; *) false ;; esac do shift; done; exec "$@"',
    "ssh": '[ "$1" = -p ] && shift 2; shift; exec sh -c "$*"',
    "parallel": 'while [ "$1" != ::: ]; do c="$c $1"; shift; done; exec sh -c "${c%{*} $2"',
}
"""Stand-ins for programs that may be missing or would need a password: each runs what it is given to run."""


MODELS = {
    "model": "acme/main",
    "provider": {"acme": {"npm": "scripted", "models": {name: {"name": name, "tool_call": True} for name in ("main", "gpt-5")}}},
}


def model_for(tool: str) -> dict[str, str]:
    """Some models are given apply_patch, the others edit and write."""
    return {"providerID": "acme", "modelID": "gpt-5" if tool == "apply_patch" else "main"}


@dataclass(frozen=True)
class Attempt:
    """`made`: part of the name of what it makes if it runs."""

    command: str
    made: str


@dataclass
class Location:
    """A workspace, the folders beside it, and the links that lead there."""

    base: Path
    asked: set[str] = field(default_factory=set)
    orders: dict[str, list[ScriptedStep]] = field(default_factory=dict)
    """By session: what the model is to call, one after the other."""

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    def prepare(self, config: dict[str, Any]) -> None:
        for name in ("outside", "home", "bin"):
            (self.base / name).mkdir()
        for name, text in {"secret": SECRET, "script.sh": "true", "prog.awk": "1", "mark.mk": "%:\n\ttouch $@"}.items():
            (self.base / "outside" / name).write_text(f"{text}\n")
        for name, script in PROGRAMS.items():
            (self.base / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.base / "bin" / name).chmod(0o755)
        make_workspace(self.workspace)
        subprocess.run("git config user.email a@b; git config user.name a", shell=True, cwd=self.workspace, check=True)
        (self.workspace / "src").mkdir()
        for name in ("b.txt", "src/b.txt", "commands.txt"):
            (self.workspace / name).write_text("true\n")
        (self.workspace / "key.env").write_text(f"{SECRET}\n")
        (self.workspace / "opencode.json").write_text(json.dumps({**MODELS, "snapshot": False, **config}))
        self.link()
        shutil.copytree(self.workspace, self.base / "as it was", symlinks=True)

    def link(self) -> None:
        links = {"dir": "../outside", "file": "../outside/secret", "inside": "src", "moving": "../outside", "env": "key.env"}
        for name, target in {**links, "dangling": "../outside/new"}.items():
            (self.workspace / f"link_{name}").symlink_to(target)
        (self.workspace / "src" / "up").symlink_to("..")

    def put_back(self) -> None:
        shutil.rmtree(self.workspace)
        shutil.copytree(self.base / "as it was", self.workspace, symlinks=True)

    def attempt(self, number: int, command: str) -> Attempt:
        made = f"made{number}x"
        if "link_dangling_" in command:
            (self.workspace / f"link_dangling_{made}").symlink_to(f"../outside/{made}")
        if "MARK.src" in command:
            (self.workspace / f"{made}.src").touch()
        return Attempt(command.replace("OUT", str(self.base / "outside")).replace("MARK", made), made)

    def has_run(self, attempt: Attempt) -> bool:
        given = {self.workspace / f"link_dangling_{attempt.made}", self.workspace / f"{attempt.made}.src"}
        return any(attempt.made in path.name for path in self.files() if path not in given)

    def files(self) -> Iterable[Path]:
        for folder in ("workspace", "outside", "home"):
            yield from (path for path in (self.base / folder).rglob("*") if ".git" not in path.parts)

    def contents(self) -> dict[str, str | None]:
        return {str(path): path.read_text(errors="replace") if path.is_file() else None for path in self.files()}

    def answer(self, request: ModelRequest) -> tuple[ScriptedStep, ...]:
        orders = self.orders.get(request.session_id)
        return (orders.pop(0) if orders else Say("Done."),)

    async def call(self, app: RunningApp, *calls: Call) -> dict[str, Any]:
        """A turn in which the model makes these calls one after the other; the state of the last."""
        session = (await app.create_session(title="T"))["id"]
        self.orders[session] = [*calls]
        await app.prompt(session, "Go on", model=model_for(calls[-1].tool))
        called = tools(await app.messages(session))
        assert len(called) == len(calls)
        return {**called[-1]["state"], "asked": session in self.asked}

    async def run(self, app: RunningApp, attempt: Attempt) -> dict[str, Any]:
        return await self.call(app, Call("bash", {"command": attempt.command, "description": "x", "timeout": 10_000}))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path('/usr/bin')}:/bin")
    monkeypatch.setenv("SHELL", "/bin/bash")
    return Location(tmp_path)


@asynccontextmanager
async def serving(place: Location, permission: dict[str, Any]) -> AsyncIterator[RunningApp]:
    """With a person who says no to everything."""
    place.prepare({"permission": permission})
    provider = ScriptedProvider(otherwise=place.answer)
    async with running_app(place.base, provider=provider, patience=600, sandbox="off") as app, app.events() as events:
        await events.until("server.connected")
        person = asyncio.create_task(say_no(app, place))
        yield app
        person.cancel()


async def say_no(app: RunningApp, place: Location) -> None:
    while True:
        for request in await app.get("/permission"):
            place.asked.add(request["sessionID"])
            await app.post(f"/permission/{request['id']}/reply", {"reply": "reject"})
        await asyncio.sleep(0.005)


def tricks() -> list[tuple[int, str]]:
    """Numbered."""
    groups = [*FORBIDDEN.values(), *OUTSIDE.values()]
    return list(enumerate(command for commands in groups for command in commands))[::EACH_COMMAND]


def rules(action: str) -> dict[str, Any]:
    return {"bash": {"*": "allow", "touch *": action}, "external_directory": action}


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_no_command_gets_past_a_rule(place: Location, figure: Figure, action: str) -> None:
    refused = 0
    async with serving(place, rules(action)) as app:
        attempts = [place.attempt(number, command) for number, command in tricks()]
        for attempt in attempts:
            state = await place.run(app, attempt)
            assert state["status"] == "error", (attempt.command, state)
            assert state["asked"] or action == "deny", attempt.command
            refused += not state["asked"]
    ran = [attempt.command for attempt in attempts if place.has_run(attempt)]
    figure(f"{len(attempts)} commands against {action} rules: {len(ran)} run ({refused} refused, the others asked about)")
    assert ran == []


async def test_each_of_the_commands_would_run_if_it_were_allowed(place: Location, figure: Figure) -> None:
    ran, missing, idle = 0, 0, []
    async with serving(place, {"*": "allow"}) as app:
        for number, command in tricks():
            place.put_back()
            attempt = place.attempt(number, command)
            output = (await place.run(app, attempt)).get("output", "")
            if place.has_run(attempt):
                ran += 1
            elif "not found" in output or "No such file" in output:
                missing += 1
            else:
                idle.append((command, output))
    figure(f"{ran} of them run when all is allowed, {missing} lack their program on this machine")
    assert idle == [] and ran >= 10 * missing


async def test_ordinary_commands_run_beside_the_rules(place: Location, figure: Figure) -> None:
    async with serving(place, rules("deny")) as app:
        attempts = [place.attempt(number, command) for number, command in enumerate(ORDINARY)]
        for attempt in attempts:
            state = await place.run(app, attempt)
            assert state["status"] == "completed" and not state["asked"], (attempt.command, state)
    left = [attempt.command for attempt in attempts if not place.has_run(attempt)]
    figure(f"{len(attempts)} ordinary commands beside the same rules: {len(attempts) - len(left)} run, none asked about")
    assert left == []


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    ("calls", "permission"),
    [
        pytest.param(FILE_TOOLS, {"external_directory": "ACTION"}, id="outside"),
        pytest.param(GUARDED_READS, {"read": {"*.env": "ACTION"}}, id="reads"),
        pytest.param(GUARDED_EDITS, {"edit": {"*.env": "ACTION"}}, id="edits"),
    ],
)
async def test_no_tool_reaches_a_file_that_a_rule_is_about(
    place: Location, figure: Figure, calls: list[Any], permission: dict[str, Any], action: str
) -> None:
    allowed = {"*": "allow", **json.loads(json.dumps(permission).replace("ACTION", action))}
    async with serving(place, allowed) as app:
        before = place.contents()
        for tool, args in calls[::EACH_CALL]:
            text = json.dumps(args).replace("OUT", str(place.base / "outside")).replace("WORKSPACE", str(place.workspace))
            first = [Call("read", {"filePath": "key.env"})] if calls is GUARDED_EDITS else []
            state = await place.call(app, *first, Call(tool, json.loads(text)))
            assert state["status"] == "error", (tool, args, state)
            assert state["asked"] or action == "deny", (tool, args)
            assert SECRET not in state["error"], (tool, args, state)
    reached = [path for path, text in place.contents().items() if before.get(path, SECRET) != text]
    figure(f"{len(calls[::EACH_CALL])} calls of file tools against {action} rules: {len(reached)} files read, changed or made")
    assert reached == []


SWAPPED = {
    "read": ({"filePath": "src/b.txt"}, "read"),
    "write": ({"filePath": "src/new", "content": "made"}, "edit"),
    "write over": ({"filePath": "src/b.txt", "content": "made"}, "edit"),
    "edit": ({"filePath": "src/b.txt", "oldString": "true", "newString": "made"}, "edit"),
    "apply_patch": ({"patchText": "*** Begin Patch\n*** Add File: src/new\n+made\n*** End Patch"}, "edit"),
    "list": ({"path": "src"}, "list"),
    "grep": ({"path": "src", "pattern": SECRET}, "grep"),
    "glob": ({"path": "src", "pattern": "**"}, "glob"),
}


@pytest.mark.parametrize("name", SWAPPED)
async def test_a_link_put_in_place_while_permission_was_asked_leads_nowhere(place: Location, name: str) -> None:
    """The person says yes to a file of the project; meanwhile its folder has become a link."""
    args, permission = SWAPPED[name]
    place.prepare({"permission": {"*": "allow", permission: "ask", "external_directory": "deny"}})
    for file in ("b.txt", f"{SECRET}.txt"):
        (place.base / "outside" / file).write_text(f"true {SECRET}\n")
    tool = name.split()[0]
    read = [{"tool": "read", "args": {"filePath": "src/b.txt"}}]
    turns = [*([read] if permission == "edit" else []), [{"tool": tool, "args": args}], [say()]]
    before = place.contents()
    async with running_app(place.base, turns=turns) as app:
        session = (await app.create_session(title="T"))["id"]
        turn = asyncio.create_task(app.prompt(session, "Go on", model=model_for(tool)))
        request = await pending(app)
        (place.workspace / "src").rename(place.workspace / "src before")
        (place.workspace / "src").symlink_to("../outside")
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await turn
        called = tools(await app.messages(session))[-1]
    outside = {path: text for path, text in place.contents().items() if path.startswith(str(place.base / "outside"))}
    assert outside == {path: text for path, text in before.items() if path in outside}
    assert SECRET not in called["state"].get("output", "")


async def test_a_link_that_another_call_makes_meanwhile_leads_nowhere(place: Location) -> None:
    """Both calls stand in one answer of the model, and run side by side."""
    place.prepare({"permission": {"*": "allow", "external_directory": "deny"}})
    swap = "for i in $(seq 300); do mv src s2; ln -s ../outside src; rm src; mv s2 src; done"
    writes = [{"tool": "write", "args": {"filePath": f"src/new{n}", "content": "made"}} for n in range(30 if LONG else 8)]
    async with running_app(place.base, turns=[[bash(swap), *writes], [say()]]) as app:
        session = (await app.create_session(title="T"))["id"]
        await app.prompt(session, "Go on")
        await until(lambda: not app.services.runs.runner.is_running(session))
    assert list((place.base / "outside").glob("new*")) == []
