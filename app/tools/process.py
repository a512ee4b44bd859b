"""Runs programs in process groups, so that their child processes end with them; with an environment without secrets.

A process that leaves the group (`setsid`), such as a server in the background, outlives the program. It is killed too, found by
its mark (app.util.processes), if the program is stopped early or this server was killed. In the sandbox it ends with the program.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO

from anyio import CancelScope

from app.project.sandbox.scope import Program
from app.util import processes
from app.util.environment import is_servers_own
from app.util.processes import pipe

TERM_GRACE_SECONDS = 0.2
"""Seconds between SIGTERM and SIGKILL."""
KILL_WAIT_SECONDS = 0.2
"""Seconds to wait until a killed group is gone."""
OUTPUT_GRACE_SECONDS = 0.2
"""Seconds to read the output of child processes after the program has ended."""
CONFINED_NICENESS = 5
_POLL = 0.01
_LAST_WAIT_SECONDS = 1.0
"""Seconds to wait for a process that cannot be signalled: it left the group or runs as another user."""
_CHUNK = 65536

UNSUITABLE_SHELLS = frozenset({"fish", "nu"})
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET")
_PROVIDERS = """
AI_GATEWAY_ ALIBABA_ ANTHROPIC_ AZURE_OPENAI_ BASETEN_ CEREBRAS_ COHERE_ DASHSCOPE_ DEEPINFRA_ DEEPSEEK_ FIREWORKS_
GEMINI_ GOOGLE_GENERATIVE_AI_ GROQ_ MISTRAL_ MOONSHOT_ NVIDIA_ OPENAI_ OPENCODE_ OPENROUTER_ PERPLEXITY_ TOGETHER_
VOYAGE_ XAI_ ZAI_ ZHIPU_
"""
_PROVIDER_PREFIXES = tuple(_PROVIDERS.split())


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """`code` is None if a signal ended the program."""

    code: int | None
    timed_out: bool


async def run(
    program: Program,
    *,
    timeout: float,
    on_output: Callable[[bytes], None],
    stderr: int = STDOUT,
) -> ProcessExit:
    """Runs the program until it ends or `timeout` seconds have passed, then kills what is left of its process group.

    `on_output` receives standard output and, unless `stderr` says otherwise, standard error, interleaved. Standard input is
    empty. Cancellation kills the group too. Raises OSError if the program cannot be started.
    """
    mark = processes.new_mark()
    async with pipe() as (output, write_end):
        pump = asyncio.create_task(_pump(output, on_output))
        try:
            async with _group(program, mark, DEVNULL, write_end, stderr) as process:
                timed_out = not await _ends_within(process, timeout)
                if not timed_out:  # its child processes may still write
                    await asyncio.wait([pump], timeout=OUTPUT_GRACE_SECONDS)
            if timed_out:
                await end_marked(program, mark)
            await asyncio.wait([pump], timeout=_LAST_WAIT_SECONDS)
        except asyncio.CancelledError:
            await asyncio.shield(end_marked(program, mark))
            raise
        finally:
            await _finish_task(pump)
    code = process.returncode
    is_killed = code is None or code < 0 or (timed_out and code > 128)  # as bubblewrap and shells say it
    return ProcessExit(code=None if is_killed else code, timed_out=timed_out)


@asynccontextmanager
async def start(
    program: Program,
    *,
    stdin: int = DEVNULL,
    stderr: int | IO[bytes] = STDOUT,
    limit: int = 2**16,
    grace_seconds: float = 0,
) -> AsyncIterator[tuple[Process, asyncio.StreamReader]]:
    """Runs the program during the block. At the end its input is closed and, after the grace period, its process group killed; of
    a program with input also what has left the group. Gives the process and its output. `limit`: of the output's buffer. Raises
    OSError as `run` does."""
    mark = processes.new_mark()
    async with pipe(limit) as (output, write_end), _group(program, mark, stdin, write_end, stderr, grace_seconds) as process:
        yield process, output


async def end_group(process: Process, is_confined: bool = False) -> None:
    """Sends SIGTERM, waits for the grace period, sends SIGKILL and reaps. Returns at once if the group is empty.

    The leader of a confined group is bubblewrap, with which all the others end at once: it is not asked.
    """
    if is_confined:
        await _end_confined(process)
    elif _signal_group(process.pid, signal.SIGTERM):
        await _wait_until_empty(process.pid, TERM_GRACE_SECONDS)
    if _signal_group(process.pid, signal.SIGKILL):
        # Bounded: without a process that reaps orphans (a container without an init) they stay listed for ever.
        await _wait_until_empty(process.pid, KILL_WAIT_SECONDS)
    await _ends_within(process, _LAST_WAIT_SECONDS)


async def _end_confined(process: Process) -> None:
    """Process 1 of the namespace is killed before bubblewrap, which then reaps it: a server that is process 1 of its container
    reaps no orphans."""
    for number, seconds in ((signal.SIGTERM, TERM_GRACE_SECONDS), (signal.SIGKILL, KILL_WAIT_SECONDS)):
        if process.returncode is None:
            await asyncio.to_thread(processes.signal_members, process.pid, number)
            await _ends_within(process, seconds)


async def end_marked(program: Program, mark: str) -> None:
    if not program.is_confined:
        await asyncio.to_thread(processes.end, lambda found: found == mark)


@asynccontextmanager
async def _group(
    program: Program, mark: str, stdin: int, stdout: IO[bytes], stderr: int | IO[bytes], grace_seconds: float = 0
) -> AsyncIterator[Process]:
    """Closes `stdout` in this process, because its reader otherwise never sees the end."""
    with stdout:
        process = await spawn(program, mark, stdin=stdin, stdout=stdout, stderr=stderr)
    try:
        yield process
    finally:
        with CancelScope(shield=True):  # anyio cancels again and again
            await asyncio.shield(_end(process, program, mark, grace_seconds))


async def _end(process: Process, program: Program, mark: str, grace_seconds: float) -> None:
    if process.stdin is not None:
        process.stdin.close()
        await _ends_within(process, grace_seconds)
    await end_group(process, program.is_confined)
    if process.stdin is not None:
        await end_marked(program, mark)


async def spawn(
    program: Program, mark: str, *, stdin: int = DEVNULL, stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> Process:
    """In a session of its own, with a mark by which it is found again. When cancelled, ends the whole group. Raises OSError, and
    ValueError for words with NUL."""
    env = {**(os.environ if program.env is None else program.env), processes.VARIABLE: mark}
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *program.argv, cwd=program.cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
        )
    )
    try:
        process = await asyncio.shield(starting)
        if program.is_confined:
            yield_processor(process.pid)
        return process
    except asyncio.CancelledError:
        # asyncio would kill the program alone, without the children that it has started by then.
        with suppress(OSError):
            await asyncio.shield(end_group(await starting, program.is_confined))
        raise


async def _pump(output: asyncio.StreamReader, on_output: Callable[[bytes], None]) -> None:
    while chunk := await output.read(_CHUNK):
        on_output(chunk)


async def _finish_task(task: asyncio.Task[None]) -> None:
    """Cancels the task if it still runs; raises its exception."""
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


async def _wait_until_empty(group: int, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while _signal_group(group, 0):  # noqa: ASYNC110  there is no event for processes that are not children
                await asyncio.sleep(_POLL)


def yield_processor(group: int) -> None:
    """Lets the server go on answering while commands take all of the processor."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, group, CONFINED_NICENESS)


def _signal_group(group: int, number: int) -> bool:
    """False if the group has no process that this one may signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def choose_shell(environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> str:
    """`$SHELL` if its syntax is that of bash; else bash; else /bin/sh."""
    preferred = environment.get("SHELL", "")
    if preferred and PurePath(preferred).name not in UNSUITABLE_SHELLS:
        return preferred
    return which("bash") or "/bin/sh"


def command_environment(environment: Mapping[str, str], provider_names: frozenset[str]) -> dict[str, str]:
    """The variables that commands may see.

    Without `provider_names` (the variables of the connected providers); variables that start with a known provider's name and end
    in _KEY, _TOKEN or _SECRET; the server's own, such as its password. Tokens of other programs (GITHUB_TOKEN, AWS_…) stay
    visible, because commands need them.
    """
    return {name: value for name, value in environment.items() if name not in provider_names and not _is_secret(name)}


def _is_secret(name: str) -> bool:
    belongs_to_provider = name.startswith(_PROVIDER_PREFIXES) and name.endswith(_SECRET_SUFFIXES)
    return belongs_to_provider or is_servers_own(name)
