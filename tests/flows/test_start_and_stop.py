"""How a server starts and stops when something goes wrong meanwhile."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from running_app import running_app
from running_server import clean_environment, free_port, this_checkout

INTERRUPTED = """
import os, signal
from app import cli
from app.workspace.workspaces import Workspaces

signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have it ignored

start = Workspaces.start

async def interrupted(started):
    for _ in range({times}):
        os.kill(os.getpid(), signal.{name})
    await start(started)

Workspaces.start = interrupted
cli.main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_server_that_is_interrupted_while_it_starts_ends_in_order(tmp_path: Path, name: str, times: int) -> None:
    program, environment = INTERRUPTED.format(times=times, name=name), this_checkout()[1]
    ran = subprocess.run(
        [sys.executable, "-c", program, "serve", "--port", str(free_port())],
        env=clean_environment(tmp_path, **environment, OPENSESSION_DATA_DIR=str(tmp_path / "data")),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in ran.stderr and "Error" not in ran.stderr
    assert ran.returncode in (1, 130) if name == "SIGINT" else ran.returncode == -signal.SIGTERM


async def fails(*_: object) -> None:
    raise RuntimeError("it broke")


STARTING = ["app.turn.runs.recovery.Recovery.run", "app.events.bus.memory.MemoryBus.start"]
STOPPING = [
    "app.workspace.terminals.terminals.Terminals.close",
    "app.turn.intake.prompt_queue.PromptQueue.close",
    "app.workspace.instances.Instances.close",
]


@pytest.mark.parametrize("what", STARTING + STOPPING)
async def test_a_start_that_fails_or_a_part_that_cannot_be_stopped_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = set(threading.enumerate())
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="it broke"):
        patched.setattr(what, fails)
        async with running_app(tmp_path) as app:
            assert what in STOPPING
            await app.create_session()
    assert_nothing_is_open(tmp_path, before)
    async with running_app(tmp_path) as app:
        await app.create_session()


def assert_nothing_is_open(base: Path, before: set[threading.Thread]) -> None:
    assert list((base / "data" / "servers").glob("*")) == []
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if not name.startswith(("asyncio", "git", "shared"))}  # those stay for the next
