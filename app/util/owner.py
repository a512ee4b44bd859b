"""Names of server processes, and whether the process that a name belongs to still lives."""

import os
import secrets
import socket
from pathlib import Path


def mine() -> str:
    """`host:pid:start:random`; a later process with the same pid has another start."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool | None:
    """None when it cannot be told: a process of another machine."""
    host, pid, started, *_ = [*owner.split(":"), "", "", ""]
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return _started(int(pid)) != started


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
