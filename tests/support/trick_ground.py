"""Where tricks are tried: a workspace with files and links, folders beside it, stand-ins for programs, and the tricks."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running_app import RunningApp, make_workspace
from turns import tools

from app.providers.base import ModelRequest
from app.providers.scripted import Call, Say, ScriptedStep

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
LINKS = {"dir": "../outside", "file": "../outside/secret", "inside": "src", "moving": "../outside", "env": "key.env"}
MODELS = {name: {"name": name, "tool_call": True} for name in ("main", "gpt-5")}
CONFIG = {"model": "acme/main", "provider": {"acme": {"npm": "scripted", "models": MODELS}}, "snapshot": False}
_SIGNS = str.maketrans({"⏎": "\n", "⇥": "\t", "␠": " ", "␣": "\u200b"})


def _tricks() -> dict[str, list[str]]:
    """What `command_tricks.txt` has, by the first word of its headings."""
    found, kind = dict[str, list[str]](), ""
    for line in Path(__file__).with_name("command_tricks.txt").read_text().splitlines():
        if line.startswith("#"):
            kind = line.split()[1]
        else:
            found.setdefault(kind, []).append(line.translate(_SIGNS))
    return found


TRICKS = _tricks()
COMMANDS = [*TRICKS["FORBIDDEN"], *TRICKS["OUTSIDE"]]


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
    """A workspace, the folders beside it, and the links that lead there. `orders`: what the model is to call, by session."""

    base: Path
    asked: set[str] = field(default_factory=set)
    orders: dict[str, list[ScriptedStep]] = field(default_factory=dict)

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
        (self.workspace / "opencode.json").write_text(json.dumps({**CONFIG, **config}))
        for name, target in {**LINKS, "dangling": "../outside/new"}.items():
            (self.workspace / f"link_{name}").symlink_to(target)
        (self.workspace / "src" / "up").symlink_to("..")
        shutil.copytree(self.workspace, self.base / "as it was", symlinks=True)

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

    def files(self, *folders: str) -> Iterable[Path]:
        for folder in folders or ("workspace", "outside", "home"):
            yield from (path for path in (self.base / folder).rglob("*") if ".git" not in path.parts)

    def contents(self, *folders: str) -> dict[str, str | None]:
        return {str(path): path.read_text(errors="replace") if path.is_file() else None for path in self.files(*folders)}

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

    async def run_all(self, app: RunningApp, commands: list[str]) -> int:
        """Each must run, and nobody be asked; how many there are."""
        for number, command in enumerate(commands):
            state = await self.run(app, attempt := self.attempt(number, command))
            assert state["status"] == "completed" and not state["asked"] and self.has_run(attempt), (command, state)
        return len(commands)
