"""What a model and a user's clients see of the sandbox."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import bash, configured, pending, reply, say, states, until_done
from user_logins import user

pytestmark = needs_sandbox

SECRET = "a secret beside the project"
ALLOW_BASH = [{"permission": "bash", "pattern": "*", "action": "allow"}]
NONE: Mapping[str, str] = {}


@asynccontextmanager
async def confined(
    base: Path, *turns: Any, files: Mapping[str, str] = NONE, **config: Any
) -> AsyncIterator[tuple[RunningApp, str]]:
    """`beside` is a directory that is no part of the project; the session lets bash run."""
    (base / "beside").mkdir()
    (base / "beside" / "secret").write_text(f"{SECRET}\n")
    workspace = configured(base, config)
    for name, text in files.items():
        (workspace / name).write_text(text)
    async with running_app(base, workspace=workspace, turns=turns, sandbox="require", patience=90) as app:
        yield app, (await app.create_session(permission=ALLOW_BASH))["id"]


async def test_a_failed_write_tells_which_permission_opens(tmp_path: Path) -> None:
    scripts = {"write.sh": f"echo x > {tmp_path}/beside/made\n", "write_etc.sh": "echo x > /etc/made\n"}
    async with confined(tmp_path, [bash("sh write.sh")], [bash("sh write_etc.sh")], [say()], files=scripts) as (app, session):
        await app.prompt(session, "Go on")
        for state in await states(app, session):
            assert "external_directory" in state["output"] and "sandbox" in state["output"], state
    assert not (tmp_path / "beside" / "made").exists() and not Path("/etc/made").exists()


async def test_a_path_that_only_the_run_shows_is_not_asked_about_and_not_reached(tmp_path: Path) -> None:
    encoded = b64encode(bytes(tmp_path / "beside" / "secret")).decode()
    async with confined(tmp_path, [bash(f"cat $(echo {encoded} | base64 -d)")], [say()]) as (app, session):
        await app.prompt(session, "Go on")
        (state,) = await states(app, session)
    assert state["status"] == "completed" and SECRET not in state["output"]


@pytest.mark.parametrize(("answer", "is_open"), [("once", False), ("always", True)])
async def test_what_the_user_allows_is_open_for_that_command_or_from_then_on(tmp_path: Path, answer: str, is_open: bool) -> None:
    read = f"cat {tmp_path}/beside/secret"
    scripts = {"read.sh": f"{read}; cat ../beside/s*t; echo more >> {tmp_path}/beside/secret\n"}
    async with confined(tmp_path, [bash(read)], [bash("sh read.sh")], [say()], files=scripts) as (app, session):
        await app.prompt_async(session, "Go on")
        request = await pending(app)
        assert request["permission"] == "external_directory"
        await reply(app, request, answer)
        await app.prompt(session, "And?")
        first, second = await states(app, session)
    assert SECRET in first["output"] and (SECRET in second["output"]) is is_open
    assert (tmp_path / "beside" / "secret").read_text() == f"{SECRET}\n" + ("more\n" if is_open else "")


async def test_what_a_user_allows_always_is_open_for_their_commands_alone(tmp_path: Path) -> None:
    read, scripts = f"cat {tmp_path}/beside/secret", {"read.sh": f"cat {tmp_path}/beside/secret\n"}
    again = [[bash("sh read.sh")], [say()]]
    async with confined(tmp_path, [bash(read)], [say()], *again, *again, files=scripts) as (app, _):
        roots = (app.directory, tmp_path / "beside")
        async with user(app, "anna", roots=roots) as anna, user(app, "ben", roots=roots) as ben:
            session = (await anna.create_session(permission=ALLOW_BASH))["id"]
            await anna.prompt_async(session, "Go on")
            await reply(anna, await pending(anna), "always")
            await until_done(app, session)
            await anna.prompt(session, "And?")
            of_ben = (await ben.create_session(permission=ALLOW_BASH))["id"]
            await ben.prompt(of_ben, "And?")
            seen = [SECRET in state["output"] for state in [*await states(anna, session), *await states(ben, of_ben)]]
    assert seen == [True, True, False]


async def test_shell_lines_reach_what_they_name_and_a_commands_shell_output_comes_from_the_sandbox(tmp_path: Path) -> None:
    read = f"cat {tmp_path}/beside/secret"
    command = {"look": {"template": f"Look: !`{read} || echo hidden`"}}
    async with confined(tmp_path, [say()], files={"read.sh": f"{read}\n"}, command=command) as (app, session):
        for line, is_reached in ((read, True), ("sh read.sh", False)):
            answer = await app.post(f"/session/{session}/shell", {"agent": "build", "command": line})
            assert (SECRET in answer["parts"][0]["state"]["output"]) is is_reached, line
        await app.post(f"/session/{session}/command", {"command": "look", "arguments": ""})
        assert (await app.messages(session))[4]["parts"][0]["text"] == "Look: hidden"


SPY = """
import json, os, sys

tool = {"name": f"seen_{os.path.exists(os.environ['BESIDE'])}", "inputSchema": {"type": "object"}}
greeting = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "spy", "version": "1"}}
answers = {"initialize": greeting, "tools/list": {"tools": [tool]}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
"""


async def test_an_mcp_program_runs_in_the_sandbox(tmp_path: Path) -> None:
    spy = {"type": "local", "command": ["python3", "spy.py"], "environment": {"BESIDE": str(tmp_path / "beside")}}
    async with confined(tmp_path, [say()], files={"spy.py": SPY}, mcp={"spy": spy}) as (app, session):
        assert (await app.get("/mcp"))["spy"] == {"status": "connected"}
        await app.prompt(session, "Go on")
        offered = str(app.provider.requests[0].tools)
    assert "spy_seen_False" in offered and "seen_True" not in offered


@pytest.mark.parametrize("whose", ["the project's", "the user's"])
async def test_the_users_own_configuration_opens_it_and_not_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    opening = {"sandbox": {"read": [str(tmp_path / "beside")], "write": [str(tmp_path / "beside")]}}
    if whose == "the user's":
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(opening))
    scripts, config = {"read.sh": f"cat {tmp_path}/beside/secret\n"}, opening if whose == "the project's" else {}
    async with confined(tmp_path, [bash("sh read.sh")], [say()], files=scripts, **config) as (app, session):
        await app.prompt(session, "Go on")
        (state,) = await states(app, session)
    assert (SECRET in state["output"]) is (whose == "the user's")


async def test_a_programs_name_in_git_configuration_is_not_run_by_the_server(tmp_path: Path) -> None:
    """A command writes what the server's own git would run outside."""
    made = tmp_path / "made"
    async with confined(tmp_path, files={"evil.sh": f"#!/bin/sh\ntouch {made}\ncat\n"}) as (app, _):
        evil = app.directory / "evil.sh"
        evil.chmod(0o700)
        settings = {"filter.x.clean": str(evil), "filter.x.required": "true", "core.fsmonitor": str(evil), "core.hooksPath": "."}
        for name, value in settings.items():
            subprocess.run(["git", "config", name, value], cwd=app.directory, check=True)
        (app.directory / ".gitattributes").write_text("* filter=x\n")
        (app.directory / "a.txt").write_text("hello\nworlds\n")
        os.utime(app.directory / "a.txt", (1, 1))
        changed = {file["path"] for file in await app.get("/file/status")}
        await app.get("/file/content", params={"path": "a.txt"})
    assert "a.txt" in changed and not made.exists()
