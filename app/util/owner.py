"""Names for processes, and whether the named process is still alive."""

import os
import secrets
import socket
from pathlib import Path


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
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return _alive(pid)


def _alive(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "alive"
    return "alive"
