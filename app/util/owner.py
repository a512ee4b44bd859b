"""Names of the processes of this machine, and whether the process that a name belongs to still lives."""

import os
import secrets
import socket
from pathlib import Path


def mine() -> str:
    """`place:pid:start:random`; a later process with the same pid has another start."""
    pid = os.getpid()
    return f"{place()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool | None:
    """None when it cannot be told: a process of another machine or container."""
    where, pid, started, *_ = [*owner.split(":"), "", "", ""]
    if where != place() or not pid.isdigit():
        return None
    return _started(int(pid)) != started


def place() -> str:
    """Where this process's id means something: containers may share a host name, and each counts its own processes."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{socket.gethostname()}/{namespace}"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty when there is none, or no /proc to ask (then a pid alone must do)."""
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
