"""Commands that everything is allowed to, in the sandbox: what reaches the disk, the secrets and the processes beside it."""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest
from command_tricks import FORBIDDEN, ORDINARY
from confined import Confined
from figures import Figure
from long_form import LONG
from path_tricks import OUTSIDE
from running_app import running_app
from running_server import serving, this_checkout
from sandboxed import needs_sandbox
from trick_ground import Location

from app.project.sandbox.sandbox import OFF
from app.providers.scripted import ScriptedProvider
from app.tools import process

pytestmark = needs_sandbox


EACH = 1 if LONG else 16
"""The short form takes one of so many."""
MARKED = "a secret of the host"
IDLE_SECONDS = 3613
RUNS = 200 if LONG else 20
PROMISED_MS = 15


async def test_no_trick_reaches_anything_outside(place: Location, figure: Figure) -> None:
    """Each trick stands in a script, which the shell reader does not look into; every rule says allow."""
    place.prepare({"permission": {"*": "allow"}})
    for secret in (place.base / "outside" / "secret", place.base / "home" / ".ssh" / "id_rsa"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text(f"{MARKED}\n")
    commands = [command for group in (*FORBIDDEN.values(), *OUTSIDE.values()) for command in group][::EACH]
    before = outside_of(place)
    read = ran = 0
    async with running_app(
        place.base, provider=ScriptedProvider(otherwise=place.answer), patience=1200, sandbox="require"
    ) as app:
        for number, command in enumerate(commands):
            place.put_back()
            attempt = place.attempt(number, command)
            (place.workspace / "try.sh").write_text(f"{attempt.command}\n")
            state = await place.run(app, type(attempt)("bash try.sh", attempt.made))
            assert state["status"] == "completed" and not state["asked"], (command, state)
            read += MARKED in state["output"] or any(MARKED in text for text in texts_of(place.workspace))
            ran += place.has_run(attempt)
    reached = changed(place, before)
    figure(f"{len(commands)} tricks in the sandbox, all allowed: {read} read a secret, {reached} files outside changed")
    assert read == reached == 0
    assert ran > len(commands) / 3, "the tricks that stay in the project do run"


def texts_of(folder: Path) -> Iterable[str]:
    """Of the files themselves: what a link leads to is not in the folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return (path.read_text(errors="replace") for path in files)


def outside_of(place: Location) -> dict[str, str | None]:
    return {path: text for path, text in place.contents().items() if not path.startswith(str(place.workspace))}


def changed(place: Location, before: dict[str, str | None]) -> int:
    after = outside_of(place)
    return sum(before.get(path) != after.get(path) for path in before.keys() | after.keys())


async def test_ordinary_commands_run_in_it(place: Location) -> None:
    place.prepare({"permission": {"*": "allow"}})
    provider = ScriptedProvider(otherwise=place.answer)
    async with running_app(place.base, provider=provider, patience=600, sandbox="require") as app:
        attempts = [place.attempt(number, command) for number, command in enumerate(ORDINARY[:: 1 if LONG else 4])]
        for attempt in attempts:
            state = await place.run(app, attempt)
            assert state["status"] == "completed" and not state["asked"], (attempt.command, state)
    assert [attempt.command for attempt in attempts if not place.has_run(attempt)] == []


ESCAPES = f"""
setsid sleep {IDLE_SECONDS} &
env -i setsid sleep {IDLE_SECONDS} &
(trap '' TERM HUP INT; nohup setsid sleep {IDLE_SECONDS} >/dev/null 2>&1 &) &
trap '' TERM HUP INT; touch up; sleep {IDLE_SECONDS}
"""


def test_a_killed_server_leaves_no_process(tmp_path: Path, figure: Figure) -> None:
    command, environment = this_checkout()
    with serving(command, tmp_path, {**environment, "OPENSESSION_SANDBOX": "require"}) as server:
        session = httpx2.post(f"{server.base}/session", json={}).json()["id"]
        caller = threading.Thread(target=run_shell, args=(f"{server.base}/session/{session}/shell",))
        caller.start()
        wait_for(lambda: len(sleeping()) == 4 and (server.workspace / "up").exists())
        server.process.kill()
        killed = time.monotonic()
        wait_for(lambda: sleeping() == [])
        figure(f"a server is killed while a command runs: 0 processes left after {time.monotonic() - killed:.2f} s")
        caller.join()


def run_shell(url: str) -> None:
    with suppress(httpx2.HTTPError):
        httpx2.post(url, json={"agent": "build", "command": ESCAPES}, timeout=120)


def sleeping() -> list[int]:
    wanted = ["sleep", str(IDLE_SECONDS)]
    return [each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == wanted]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_what_it_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure) -> None:
    confined = Confined.make(tmp_path, monkeypatch)
    with_it, without = await median_ms(confined), await median_ms(confined, confined_too=False)
    figure(f"a command (`true`, median of {RUNS}): {with_it:.1f} ms in the sandbox, {without:.1f} ms without")
    assert not LONG or with_it - without <= PROMISED_MS


async def median_ms(confined: Confined, confined_too: bool = True) -> float:
    sandbox = confined.sandbox if confined_too else OFF
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        program = await asyncio.to_thread(
            sandbox.program, ["/bin/bash", "-c", "true"], confined.workspace(), {"PATH": "/usr/bin"}
        )
        ended = await process.run(program, timeout=60, on_output=lambda chunk: None)
        assert ended.code == 0
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)
