"""What a model and a user's clients see of the sandbox."""

import json
import os
import stat
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from sandboxed import needs_sandbox
from turns import bash, configured, pending, say, tools, until
from user_logins import user

pytestmark = needs_sandbox

SECRET = "a secret beside the project"


@asynccontextmanager
async def confined(base: Path, *turns: Any, **config: Any) -> AsyncIterator[RunningApp]:
    """`beside` is a directory that is no part of the project."""
    (base / "beside").mkdir()
    (base / "beside" / "secret").write_text(f"{SECRET}\n")
    async with running_app(base, workspace=configured(base, config), turns=turns, sandbox="require", patience=90) as app:
        yield app


async def states(app: RunningApp, session: str) -> list[dict[str, Any]]:
    return [called["state"] for called in tools(await app.messages(session))]


async def test_a_failed_write_tells_which_permission_opens(tmp_path: Path) -> None:
    async with confined(tmp_path, [bash("sh write.sh")], [bash("sh write_etc.sh")], [say()]) as app:
        (app.directory / "write.sh").write_text(f"echo x > {tmp_path}/beside/made\n")
        (app.directory / "write_etc.sh").write_text("echo x > /etc/made\n")
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt(session, "Go on")
        for state in await states(app, session):
            assert "external_directory" in state["output"] and "sandbox" in state["output"], state
    assert not (tmp_path / "beside" / "made").exists() and not Path("/etc/made").exists()


def allow(permission: str, pattern: str = "*") -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": "allow"}


def encoded(path: Path) -> str:
    return b64encode(bytes(path)).decode()


async def test_a_path_that_only_the_run_shows_is_not_asked_about_and_not_reached(tmp_path: Path) -> None:
    async with confined(tmp_path, [bash(f"cat $(echo {encoded(tmp_path / 'beside' / 'secret')} | base64 -d)")], [say()]) as app:
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt(session, "Go on")
        (state,) = await states(app, session)
    assert state["status"] == "completed" and SECRET not in state["output"]


async def test_what_the_user_allows_once_is_open_for_that_command(tmp_path: Path) -> None:
    named = f"cat {tmp_path}/beside/secret"
    async with confined(tmp_path, [bash(named)], [bash("sh read.sh")], [say()]) as app:
        (app.directory / "read.sh").write_text(f"{named}; cat ../beside/s*t\n")
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt_async(session, "Go on")
        request = await pending(app)
        assert request["permission"] == "external_directory"
        await app.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await app.prompt(session, "And?")
        first, second = await states(app, session)
    assert SECRET in first["output"] and SECRET not in second["output"]


async def test_what_the_user_allows_always_is_open_from_then_on(tmp_path: Path) -> None:
    async with confined(tmp_path, [bash(f"cat {tmp_path}/beside/secret")], [bash("sh read.sh")], [say()]) as app:
        (app.directory / "read.sh").write_text(f"cat {tmp_path}/beside/secret; echo more >> {tmp_path}/beside/secret\n")
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt_async(session, "Go on")
        await app.post(f"/permission/{(await pending(app))['id']}/reply", {"reply": "always"})
        await app.prompt(session, "And?")
        first, second = await states(app, session)
    assert SECRET in first["output"] and SECRET in second["output"]
    assert (tmp_path / "beside" / "secret").read_text() == f"{SECRET}\nmore\n"


async def test_what_a_user_allows_always_is_open_for_their_commands_alone(tmp_path: Path) -> None:
    read = [bash("sh read.sh")]
    async with confined(tmp_path, [bash(f"cat {tmp_path}/beside/secret")], [say()], read, [say()], read, [say()]) as app:
        (app.directory / "read.sh").write_text(f"cat {tmp_path}/beside/secret\n")
        roots = (app.directory, tmp_path / "beside")
        async with user(app, "anna", roots=roots) as anna, user(app, "ben", roots=roots) as ben:
            session = (await anna.create_session(permission=[allow("bash")]))["id"]
            await anna.prompt_async(session, "Go on")
            await anna.post(f"/permission/{(await pending(anna))['id']}/reply", {"reply": "always"})
            await until(lambda: not app.services.live.is_running(session))
            await anna.prompt(session, "And?")
            asked, again = await states(anna, session)
            of_ben = (await ben.create_session(permission=[allow("bash")]))["id"]
            await ben.prompt(of_ben, "And?")
            (other,) = await states(ben, of_ben)
    assert SECRET in asked["output"] and SECRET in again["output"] and SECRET not in other["output"]


async def test_a_users_shell_line_reaches_what_it_names(tmp_path: Path) -> None:
    async with confined(tmp_path) as app:
        (app.directory / "read.sh").write_text(f"cat {tmp_path}/beside/secret\n")
        session = (await app.create_session())["id"]
        for command, is_reached in ((f"cat {tmp_path}/beside/secret", True), ("sh read.sh", False)):
            answer = await app.post(f"/session/{session}/shell", {"agent": "build", "command": command})
            assert (SECRET in answer["parts"][0]["state"]["output"]) is is_reached, command


async def test_a_commands_shell_output_comes_from_the_sandbox(tmp_path: Path) -> None:
    template = f"Look: !`cat {tmp_path}/beside/secret || echo hidden`"
    async with confined(tmp_path, [say()], command={"look": {"template": template}}) as app:
        session = (await app.create_session())["id"]
        await app.post(f"/session/{session}/command", {"command": "look", "arguments": ""})
        text = (await app.messages(session))[0]["parts"][0]["text"]
    assert text == "Look: hidden"


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
    (configured(tmp_path, {}) / "spy.py").write_text(SPY)
    async with confined(tmp_path, [say()], mcp={"spy": spy}) as app:
        assert (await app.get("/mcp"))["spy"] == {"status": "connected"}
        session = (await app.create_session())["id"]
        await app.prompt(session, "Go on")
        offered = str(app.provider.requests[0].tools)
    assert "spy_seen_False" in offered and "seen_True" not in offered


async def test_the_projects_own_configuration_does_not_open_it(tmp_path: Path) -> None:
    config = {"sandbox": {"read": [str(tmp_path / "beside")], "write": [str(tmp_path / "beside")]}}
    async with confined(tmp_path, [bash("sh read.sh")], [say()], **config) as app:
        (app.directory / "read.sh").write_text(f"cat {tmp_path}/beside/secret\n")
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt(session, "Go on")
        (state,) = await states(app, session)
    assert SECRET not in state["output"]


async def test_the_users_configuration_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"sandbox": {"read": [str(tmp_path / "beside")]}}))
    async with confined(tmp_path, [bash("sh read.sh")], [say()]) as app:
        (app.directory / "read.sh").write_text(f"cat {tmp_path}/beside/secret\n")
        session = (await app.create_session(permission=[allow("bash")]))["id"]
        await app.prompt(session, "Go on")
        (state,) = await states(app, session)
    assert SECRET in state["output"]


async def test_a_programs_name_in_git_configuration_is_not_run_by_the_server(tmp_path: Path) -> None:
    """A command writes what the server's own git would run outside."""
    made = tmp_path / "made"
    script = f"#!/bin/sh\ntouch {made}\ncat\n"
    async with confined(tmp_path) as app:
        evil = app.directory / "evil.sh"
        evil.write_text(script)
        evil.chmod(evil.stat().st_mode | stat.S_IXUSR)
        settings = {"filter.x.clean": str(evil), "filter.x.required": "true", "core.fsmonitor": str(evil), "core.hooksPath": "."}
        for name, value in settings.items():
            subprocess.run(["git", "config", name, value], cwd=app.directory, check=True)
        (app.directory / ".gitattributes").write_text("* filter=x\n")
        (app.directory / "a.txt").write_text("hello\nworlds\n")
        os.utime(app.directory / "a.txt", (1, 1))
        changed = {file["path"] for file in await app.get("/file/status")}
        await app.get("/file/content", params={"path": "a.txt"})
    assert "a.txt" in changed and not made.exists()
