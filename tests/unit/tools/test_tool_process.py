import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

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


async def run(tmp_path: Path, script: str, *, timeout: float = 20, collected: list[bytes] | None = None) -> process.ProcessExit:
    chunks = collected if collected is not None else []
    environment = {"PATH": os.environ["PATH"], MARKER: str(tmp_path)}
    program = Program(["/bin/sh", "-c", script], tmp_path, environment)
    return await process.run(program, timeout=timeout, on_output=chunks.append)


async def until_exists(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_output_and_error_stream_arrive_in_the_order_written(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    ended = await run(tmp_path, "echo one; echo two >&2; echo three; exit 3", collected=chunks)
    assert b"".join(chunks) == b"one\ntwo\nthree\n"
    assert ended == process.ProcessExit(code=3, timed_out=False)


async def test_standard_input_is_empty_and_there_is_no_terminal(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    await run(tmp_path, "cat; test -t 0 || echo none; (: </dev/tty) 2>/dev/null || echo no tty", collected=chunks)
    assert b"".join(chunks) == b"none\nno tty\n"


async def test_all_of_a_large_output_arrives(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    await run(tmp_path, "head -c 3000000 /dev/zero", collected=chunks)
    assert sum(map(len, chunks)) == 3_000_000


async def test_a_signal_leaves_no_exit_code(tmp_path: Path) -> None:
    assert (await run(tmp_path, "kill -9 $$")).code is None


async def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    ended = await run(tmp_path, "sleep 60 & (sleep 60; :) & sleep 60", timeout=0.2)
    assert ended == process.ProcessExit(code=None, timed_out=True)
    assert marked(tmp_path) == []


async def test_who_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done"
    begun = time.monotonic()
    ended = await run(tmp_path, script, timeout=0.2)
    assert ended.timed_out
    assert time.monotonic() - begun < 20
    assert marked(tmp_path) == []


async def test_a_program_may_clean_up_when_asked_to_end(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    await run(tmp_path, "trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.01; done", timeout=0.3, collected=chunks)
    assert b"".join(chunks).startswith(b"up\n")
    assert b"".join(chunks).endswith(b"cleaned\n")


async def test_a_background_process_that_holds_the_pipe_neither_hangs_the_call_nor_outlives_it(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    begun = time.monotonic()
    ended = await run(tmp_path, "sleep 60 & echo started", collected=chunks)
    assert ended == process.ProcessExit(code=0, timed_out=False)
    assert time.monotonic() - begun < 20
    assert b"".join(chunks) == b"started\n"
    assert marked(tmp_path) == []


async def test_a_silent_background_process_does_not_outlive_the_call(tmp_path: Path) -> None:
    await run(tmp_path, "sleep 60 >/dev/null 2>&1 & exit 0")
    assert marked(tmp_path) == []


async def test_what_a_background_process_still_writes_is_read(tmp_path: Path) -> None:
    chunks: list[bytes] = []
    await run(tmp_path, "(sleep 0.02; echo late) &", collected=chunks)
    assert b"".join(chunks) == b"late\n"


async def test_a_process_that_left_the_group_does_not_hang_the_call(tmp_path: Path) -> None:
    daemon = "import os,time; os.setsid(); open('left','w').write(str(os.getpid())); time.sleep(30)"
    begun = time.monotonic()
    await run(tmp_path, f'{sys.executable} -c "{daemon}" & while ! test -s left; do sleep 0.01; done')
    try:
        assert time.monotonic() - begun < 20
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


async def test_abort_ends_the_whole_group_and_passes_on(tmp_path: Path) -> None:
    task = asyncio.create_task(run(tmp_path, "trap '' TERM; sleep 60 & touch up; while :; do sleep 0.05; done"))
    await until_exists(tmp_path / "up")
    assert marked(tmp_path)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 20
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


async def test_a_second_abort_does_not_save_the_group(tmp_path: Path) -> None:
    task = asyncio.create_task(run(tmp_path, "trap '' TERM; touch up; while :; do sleep 0.05; done"))
    await until_exists(tmp_path / "up")
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while marked(tmp_path):
            await asyncio.sleep(0.02)


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
    async with process.start(program) as child:
        assert (await child.output.readline()) == b"y\n"
    assert child.process.returncode is not None
    assert marked(tmp_path) == []


async def test_what_left_the_group_ends_when_the_program_is_cut_short(tmp_path: Path) -> None:
    escape = f"setsid sh -c 'trap \"\" TERM; touch {tmp_path}/up; sleep 60' & env -i sleep 61 & wait"
    running = asyncio.create_task(run(tmp_path, escape))
    await until_exists(tmp_path / "up")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not marked(tmp_path)


async def test_what_left_the_group_goes_on_after_a_program_that_ended_by_itself(tmp_path: Path) -> None:
    await run(tmp_path, f"setsid sh -c 'touch {tmp_path}/up; exec sleep 60' >/dev/null 2>&1 & sleep 0.1")
    (left,) = marked(tmp_path)
    left.kill()
