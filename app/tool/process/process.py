"""Programs in process groups of their own, so that what a program started ends with it.

What left its group on purpose (`setsid`) goes on after a program's own end, as a server that a command starts in the background
should; when the program is cut short, or the server that ran it was killed, that ends too, known by its mark (util.marks).
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.util import marks
from app.util.pipe_reader import PipeReader

TERM_GRACE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
KILL_WAIT = 0.2
"""Seconds that a killed group may take to be gone."""
LINGER = 0.2
"""Seconds that what a program left running may still write, once the program itself has ended."""
_POLL = 0.01
_LAST_WAIT = 1.0
"""Seconds to wait for what a signal cannot hasten: a process that left the group, or that runs as another user."""
_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Exit:
    """`code` is None when a signal ended it."""

    code: int | None
    timed_out: bool


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float,
    on_output: Callable[[bytes], None],
    stderr: int = STDOUT,
) -> Exit:
    """Runs until the program itself ends or `timeout` seconds are over; then nothing of its group lives.

    Standard output and, unless `stderr` says otherwise, error reach `on_output` interleaved; standard input is empty.
    Cancelled, it ends all that and lets the cancellation through. Raises OSError when the program cannot be started.
    """
    mark = marks.new()
    async with _pipe() as (output, write_end):
        pump = asyncio.create_task(_pump(output, on_output))
        try:
            async with _group(argv, cwd=cwd, env=_marked(env, mark), stdout=write_end, stderr=stderr) as process:
                timed_out = not await _exited_within(process, pump, timeout)
            if timed_out:
                await _end_marked(mark)
            await asyncio.wait([pump], timeout=_LAST_WAIT)
        except asyncio.CancelledError:
            await asyncio.shield(_end_marked(mark))
            raise
        finally:
            await _settle(pump)
    code = process.returncode
    return Exit(code=code if code is not None and code >= 0 else None, timed_out=timed_out)


async def _exited_within(process: Process, pump: asyncio.Task[None], timeout: float) -> bool:
    """Whether it ended in time; then what it left running may still write for a moment."""
    if not await _ends_within(process, timeout):
        return False
    await asyncio.wait([pump], timeout=LINGER)
    return True


@dataclass(frozen=True, slots=True)
class Child:
    process: Process
    output: asyncio.StreamReader


@asynccontextmanager
async def start(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, stderr: int | IO[bytes] = STDOUT
) -> AsyncIterator[Child]:
    """The program while the block runs; on leaving it, in any way, its whole group is dead. Raises OSError as `run` does."""
    marked = _marked(env, marks.new())
    async with _pipe() as (output, write_end), _group(argv, cwd=cwd, env=marked, stdout=write_end, stderr=stderr) as process:
        yield Child(process, output)


async def end_group(process: Process) -> None:
    """SIGTERM, a grace, SIGKILL, reap; returns at once when nothing of the group is left."""
    if _signal_group(process.pid, signal.SIGTERM):
        await _group_empties(process.pid, TERM_GRACE)
        if _signal_group(process.pid, signal.SIGKILL):
            # Dying takes a moment; but where nobody reaps orphans (a container without an init) they stay listed for ever.
            await _group_empties(process.pid, KILL_WAIT)
    await _ends_within(process, _LAST_WAIT)


def _marked(env: Mapping[str, str] | None, mark: str) -> dict[str, str]:
    return {**(os.environ if env is None else env), marks.VARIABLE: mark}


async def _end_marked(mark: str) -> None:
    await asyncio.to_thread(marks.end, lambda found: found == mark)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """Not asyncio's PIPE: with that, `Process.wait()` waits until every background child has closed its end."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(write_fd, "wb", buffering=0) as write_end:
        output = asyncio.StreamReader()
        transport = PipeReader(read_fd, asyncio.StreamReaderProtocol(output))
        try:
            yield output, write_end
        finally:
            transport.close()


@asynccontextmanager
async def _group(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None, stdout: IO[bytes], stderr: int | IO[bytes]
) -> AsyncIterator[Process]:
    """Takes `stdout` over: this process must not hold it open, or its reader never sees the end."""
    with stdout:
        process = await _spawn(argv, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
    try:
        yield process
    finally:
        await asyncio.shield(end_group(process))


async def _spawn(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None, stdout: IO[bytes], stderr: int | IO[bytes]
) -> Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=env, stdin=DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Left to itself asyncio would kill the program alone, and by then it may have started others.
        with suppress(OSError):
            await asyncio.shield(end_group(await starting))
        raise


async def _pump(output: asyncio.StreamReader, on_output: Callable[[bytes], None]) -> None:
    while chunk := await output.read(_CHUNK):
        on_output(chunk)


async def _settle(task: asyncio.Task[None]) -> None:
    """Stop the task if it still runs; raise what it failed with."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _ends_within(process: Process, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()
            return True
    return False


async def _group_empties(group: int, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while _signal_group(group, 0):  # noqa: ASYNC110  nothing tells of processes that are not ours to wait for
                await asyncio.sleep(_POLL)


def _signal_group(group: int, number: int) -> bool:
    """False when the group has no process left that this one may signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
