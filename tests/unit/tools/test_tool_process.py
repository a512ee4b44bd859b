import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from polling import until

from app.project.sandbox.scope import Program
from app.tools import process

MARKER = "OPENSESSION_TEST_GROUP"


def marked(tmp_path: Path) -> list[psutil.Process]:
    """Living processes that were started with this test's mark in their environment."""
    found = []
    for candidate in psutil.process_iter():
        try:
            if candidate.environ().get(MARKER) == str(tmp_path) and candidate.status() != psutil.STATUS_ZOMBIE:
                found.append(candidate)
        except psutil.Error:
            continue
    return found


async def run(tmp_path: Path, script: str, timeout: float = 20) -> tuple[process.ProcessExit, bytes]:
    """How the script ended, and its output."""
    chunks: list[bytes] = []
    environment = {"PATH": os.environ["PATH"], MARKER: str(tmp_path)}
    program = Program(["/bin/sh", "-c", script], tmp_path, environment)
    return await process.run(program, timeout=timeout, on_output=chunks.append), b"".join(chunks)


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        pytest.param("echo one; echo two >&2; echo three; exit 3", 3, b"one\ntwo\nthree\n", id="both streams in their order"),
        pytest.param(
            "cat; test -t 0 || echo none; (: </dev/tty) 2>/dev/null || echo no tty", 0, b"none\nno tty\n", id="no input"
        ),
        pytest.param("head -c 3000000 /dev/zero", 0, bytes(3_000_000), id="all of a large output"),
        pytest.param("kill -9 $$", None, b"", id="a signal leaves no exit code"),
        pytest.param("(sleep 0.02; echo late) &", 0, b"late\n", id="what a background process still writes"),
        pytest.param("sleep 60 & echo started", 0, b"started\n", id="a background process is ended"),
        pytest.param("sleep 60 >/dev/null 2>&1 & exit 0", 0, b"", id="a silent background process, too"),
    ],
)
async def test_a_program_s_output_and_end(tmp_path: Path, script: str, code: int | None, output: bytes) -> None:
    begun = time.monotonic()
    assert await run(tmp_path, script) == (process.ProcessExit(code=code, timed_out=False), output)
    assert time.monotonic() - begun < 20
    assert marked(tmp_path) == []


FOREVER = "while :; do sleep 0.01; done"


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        pytest.param("sleep 60 & (sleep 60; :) & sleep 60", None, b"", id="the whole group"),
        pytest.param(f"trap '' TERM; (trap '' TERM; {FOREVER}) & {FOREVER}", None, b"", id="who ignores the request to end"),
        pytest.param(f"trap 'echo cleaned; exit 0' TERM; echo up; {FOREVER}", 0, b"up\ncleaned\n", id="who cleans up first"),
        pytest.param(f"trap 'exit 143' TERM; {FOREVER}", None, b"", id="whose signal is told as a shell does, by bubblewrap"),
    ],
)
async def test_a_timeout_ends(tmp_path: Path, script: str, code: int | None, output: bytes) -> None:
    begun = time.monotonic()
    ended, written = await run(tmp_path, script, timeout=0.3)
    assert ended == process.ProcessExit(code=code, timed_out=True)
    assert written.replace(b"Terminated\n", b"") == output, "some shells tell of a `sleep` that was ended"
    assert time.monotonic() - begun < 20
    assert marked(tmp_path) == []


async def test_a_process_that_left_the_group_does_not_hang_the_call(tmp_path: Path) -> None:
    daemon = "import os,time; os.setsid(); open('left','w').write(str(os.getpid())); time.sleep(30)"
    begun = time.monotonic()
    await run(tmp_path, f'{sys.executable} -c "{daemon}" & while ! test -s left; do sleep 0.01; done')
    try:
        assert time.monotonic() - begun < 20
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


ESCAPE = "setsid sh -c 'trap \"\" TERM; touch up; sleep 60' & env -i sleep 61 & wait"


@pytest.mark.parametrize("aborts", [1, 2])
@pytest.mark.parametrize("script", [f"trap '' TERM; sleep 60 & touch up; {FOREVER}", ESCAPE], ids=["group", "left the group"])
async def test_an_abort_ends_all_and_passes_on(tmp_path: Path, script: str, aborts: int) -> None:
    task = asyncio.create_task(run(tmp_path, script))
    await until((tmp_path / "up").exists)
    assert marked(tmp_path)
    begun = time.monotonic()
    for _ in range(aborts):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 20
    await until(lambda: not (aborts > 1 and marked(tmp_path)))
    assert marked(tmp_path) == []


async def test_abort_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path) -> None:
    for turns in range(12):
        task = asyncio.create_task(run(tmp_path, "sleep 60"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert marked(tmp_path) == []


async def test_a_program_that_does_not_exist_is_an_error_and_leaks_nothing(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(FileNotFoundError):
        await process.run(Program([str(tmp_path / "none")], tmp_path), timeout=1, on_output=lambda chunk: None)
    await asyncio.sleep(0)
    assert len(os.listdir("/dev/fd")) <= before


async def test_what_the_receiver_raises_is_not_lost(tmp_path: Path) -> None:
    def refuse(chunk: bytes) -> None:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        await process.run(Program(["/bin/sh", "-c", "echo x"], tmp_path), timeout=5, on_output=refuse)


async def test_started_program_is_dead_when_the_block_is_left(tmp_path: Path) -> None:
    program = Program(["/bin/sh", "-c", "yes"], tmp_path, {"PATH": os.environ["PATH"], MARKER: str(tmp_path)})
    async with process.start(program) as (child, output):
        assert (await output.readline()) == b"y\n"
    assert child.returncode is not None
    assert marked(tmp_path) == []


async def test_what_left_the_group_goes_on_after_a_program_that_ended_by_itself(tmp_path: Path) -> None:
    await run(tmp_path, f"setsid sh -c 'touch {tmp_path}/up; exec sleep 60' >/dev/null 2>&1 & sleep 0.1")
    (left,) = marked(tmp_path)
    left.kill()
