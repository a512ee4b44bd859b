"""Commands that everything is allowed to, in the sandbox: what reaches the disk, the secrets and the processes beside it."""

import asyncio
import statistics
import time
from pathlib import Path

import psutil
import pytest
from confined import Confined
from figures import Figure
from killable import Servers
from long_form import LONG
from running_app import running_app
from sandboxed import needs_sandbox
from trick_ground import COMMANDS, TRICKS, Location
from turns import until

from app.project.sandbox.sandbox import OFF
from app.providers.scripted import ScriptedProvider
from app.tools import process

pytestmark = needs_sandbox

EACH = 1 if LONG else 16
"""The short form takes one of so many."""
MARKED = "a secret of the host"
IDLE_SECONDS = 3613
RUNS = 200 if LONG else 5
PROMISED_MS = 15


async def test_no_trick_reaches_anything_outside_and_ordinary_commands_run(place: Location, figure: Figure) -> None:
    """Each trick stands in a script, which the shell reader does not look into; every rule says allow."""
    place.prepare({"permission": {"*": "allow"}})
    for secret in (place.base / "outside" / "secret", place.base / "home" / ".ssh" / "id_rsa"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text(f"{MARKED}\n")
    commands, provider, before = COMMANDS[::EACH], ScriptedProvider(otherwise=place.answer), place.contents("outside", "home")
    read = ran = 0
    async with running_app(place.base, provider=provider, patience=1200, sandbox="require") as app:
        for number, command in enumerate(commands):
            place.put_back()
            attempt = place.attempt(number, command)
            (place.workspace / "try.sh").write_text(f"{attempt.command}\n")
            state = await place.run(app, type(attempt)("bash try.sh", attempt.made))
            assert state["status"] == "completed" and not state["asked"], (command, state)
            # What a link leads to is not in the folder.
            files = [path for path in place.workspace.rglob("*") if path.is_file() and not path.is_symlink()]
            read += MARKED in state["output"] or any(MARKED in path.read_text(errors="replace") for path in files)
            ran += place.has_run(attempt)
        after = place.contents("outside", "home")
        place.put_back()
        await place.run_all(app, TRICKS["ORDINARY"][:: 1 if LONG else 4])
    reached = sum(before.get(path) != after.get(path) for path in before.keys() | after.keys())
    figure(f"{len(commands)} tricks in the sandbox, all allowed: {read} read a secret, {reached} files outside changed")
    assert read == reached == 0
    assert ran > len(commands) / 3, "the tricks that stay in the project do run"


ESCAPES = f"""
setsid sleep {IDLE_SECONDS} &
env -i setsid sleep {IDLE_SECONDS} &
(trap '' TERM HUP INT; nohup setsid sleep {IDLE_SECONDS} >/dev/null 2>&1 &) &
trap '' TERM HUP INT; touch up; sleep {IDLE_SECONDS}
"""


async def test_a_killed_server_leaves_no_process(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path, OPENSESSION_SANDBOX="require")
    async with servers.start() as client:
        path = f"/session/{await client.session()}/shell"
        running = asyncio.create_task(client.post(path, {"agent": "build", "command": ESCAPES}))
        await until(lambda: len(sleeping()) == 4 and (servers.workspace / "up").exists(), "the commands")
        client.process.kill()
        killed = time.monotonic()
        await until(lambda: sleeping() == [], "the end of all commands")
        figure(f"a server is killed while a command runs: 0 processes left after {time.monotonic() - killed:.2f} s")
        assert await running is None


def sleeping() -> list[int]:
    wanted = ["sleep", str(IDLE_SECONDS)]
    return [each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == wanted]


async def test_what_it_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    confined = Confined.make(tmp_path, monkeypatch)
    with_it, without = await median_ms(confined), await median_ms(confined, confined_too=False)
    figure(f"a command (`true`, median of {RUNS}): {with_it:.1f} ms in the sandbox, {without:.1f} ms without")
    assert not LONG or with_it - without <= PROMISED_MS


async def median_ms(confined: Confined, confined_too: bool = True) -> float:
    program_of, taken = (confined.sandbox if confined_too else OFF).program, []
    for _ in range(RUNS):
        began = time.perf_counter()
        command = ["/bin/bash", "-c", "true"]
        program = await asyncio.to_thread(program_of, command, confined.workspace(), {"PATH": "/usr/bin"})
        assert (await process.run(program, timeout=60, on_output=lambda chunk: None)).code == 0
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)
