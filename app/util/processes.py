"""Programs that the server has started: which server runs which, and reading their pipes.

A variable in their environment marks them. Child processes inherit it, even those that left the process group (`setsid`) or lost
their parent. Without /proc no program is found.
"""

import asyncio
import itertools
import os
import secrets
import signal
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import uvloop

VARIABLE = "OPENSESSION_RUN"
_PREFIX = f"{VARIABLE}=".encode()
_GRACE_SECONDS = 0.2
_POLL_SECONDS = 0.01
_KILL_ROUNDS = 20

_numbers = itertools.count(1)


def this_process() -> str:
    """`namespace:pid:start:random`; a later process with the same pid has another start time."""
    pid = os.getpid()
    return f"{pid_namespace()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool | None:
    """None if unknown: the process belongs to another machine or container."""
    where, pid, started, *_ = [*owner.split(":"), "", "", ""]
    if where != pid_namespace() or not pid.isdigit():
        return None
    return _started(int(pid)) != started


def pid_namespace() -> str:
    """The host name with the pid namespace: containers may share a host name, but each numbers its own processes."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}/{namespace}"


def _started(pid: int) -> str:
    """The start time of a process in kernel ticks; empty if there is no such process. Without /proc, "alive" for any process."""
    if facts := _stat(pid):
        return facts[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"


def _stat(pid: int) -> list[str]:
    """The state of a process, and what the kernel says of it after that; empty without such a process, or without /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@cache
def _server() -> str:
    """This process's id in the marks. It is made with the first mark, not at import, so that a fork made before has its own."""
    return this_process()


def new_mark() -> str:
    """A mark for one program: which server runs it, and a number."""
    return f"{_server()}:{next(_numbers)}"


def end(matches: Callable[[str], bool]) -> int:
    """Ends every process whose mark `matches`, and all others of its process session (setsid). Returns how many there were.
    Blocks for up to a second."""
    found = _matching_pids(matches)
    if not found:
        return 0
    _signal(found, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while (left := _matching_pids(matches)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for _ in range(_KILL_ROUNDS):
        if not left:
            break
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        left = _matching_pids(matches)
    return len(found)


def end_abandoned() -> int:
    """Ends what servers that are gone left running."""
    return end(lambda mark: is_gone(mark) is True)


def _matching_pids(matches: Callable[[str], bool]) -> set[int]:
    """Includes the programs that a marked one has started with a bare environment: they share its process session."""
    own = os.getpid()
    marked = {pid for pid in _pids() if (mark := _mark_of(pid)) and matches(mark)}
    sessions = {_session_of(pid) for pid in marked} - {None, _session_of(own)}
    beside = {pid for pid in _pids() if _session_of(pid) in sessions} if sessions else set()
    return {pid for pid in (marked - {own}) | beside if _is_running(pid)}


def _is_running(pid: int) -> bool:
    """False for a zombie, whose parent has not read its exit code yet."""
    return _stat(pid)[:1] not in ([], ["Z"])


def _pids() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _mark_of(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    line = next((line for line in variables.split(b"\0") if line.startswith(_PREFIX)), None)
    return line[len(_PREFIX) :].decode("utf-8", "replace") if line else None


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def signal_members(group: int, number: int) -> None:
    """Signals all processes of the group but its leader."""
    for pid in _pids():
        with suppress(OSError):
            if pid != group and os.getpgid(pid) == group:
                os.kill(pid, number)


# Pipes, read in the event loop.


class _ReadEnd:
    """What a loop is given to read. uvloop closes the descriptor itself, and then the file that it was given: by then another
    thread may have opened a file that has its number, such as the database."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_the_loops = isinstance(asyncio.get_running_loop(), uvloop.Loop)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self._is_the_loops:
            os.close(self._descriptor)


def is_pipe(descriptor: int) -> bool:
    """Whether it is what a loop can wait for: a pipe, a socket or a terminal. uvloop ends the process at a plain file."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def read_pipe(descriptor: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """The reader, and what closes the descriptor. `limit`: of the reader's buffer. Raises ValueError if it is none."""
    if not is_pipe(descriptor):
        raise ValueError("it is no pipe, socket or terminal")
    reader = asyncio.StreamReader(limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, _ReadEnd(descriptor))
    return reader, transport


@asynccontextmanager
async def pipe(limit: int = 2**16) -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """Replaces asyncio's PIPE, with which `Process.wait()` waits until every background child has closed its end. `limit`: of
    the reader's buffer."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(write_fd, "wb", buffering=0) as write_end:
        output, transport = await read_pipe(read_fd, limit)
        try:
            yield output, write_end
        finally:
            transport.close()
