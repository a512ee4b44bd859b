"""How a server starts and stops when something goes wrong meanwhile."""

import os
import signal
import threading
from functools import partial
from pathlib import Path

import forked_program
import pytest
from forked import Forked
from running_app import running_app
from running_server import clean_environment, free_port, this_checkout


@pytest.mark.parametrize(("sent", "codes"), [(signal.SIGINT, (1, 130)), (signal.SIGTERM, (-signal.SIGTERM,))])
@pytest.mark.parametrize("times", [1, 3])
def test_a_server_that_is_interrupted_while_it_starts_ends_in_order(
    tmp_path: Path, sent: signal.Signals, codes: tuple[int, ...], times: int
) -> None:
    environment = clean_environment(tmp_path, **this_checkout()[1], OPENSESSION_DATA_DIR=str(tmp_path / "data"))
    files = [Path(os.devnull), tmp_path / "out", tmp_path / "err"]
    interrupted = partial(forked_program.run_interrupted, sent, times)
    server = Forked(["serve", "--port", str(free_port())], tmp_path, environment, files, interrupted)
    assert server.wait(120) in codes
    said = (tmp_path / "err").read_text()
    assert "Traceback" not in said and "Error" not in said


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
