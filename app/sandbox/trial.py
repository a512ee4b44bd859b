"""Whether the sandbox works on this machine: it is tried once, with the arguments that commands get."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from app.sandbox.bubblewrap import arguments
from app.sandbox.scope import MachineFacts, SandboxWorkspace, scope_of

SECONDS = 10
_MESSAGE_CHARACTERS = 300
_PROOF = "test ! -w /proc/sys/kernel/core_pattern && test ! -w /proc/sysrq-trigger && echo works"
"""Fails also where the kernel's settings can be written: a `core_pattern` is run outside of all namespaces."""


class SandboxUnusable(Exception):
    """Why it does not work here."""


def usable(machine: MachineFacts) -> MachineFacts:
    """The facts with the kind of namespaces that works. Root needs no user namespace, and in one files of other owners are out of
    reach; a container may allow root that kind alone. Raises SandboxUnusable."""
    if sys.platform != "linux":
        raise SandboxUnusable("bubblewrap is for Linux only")
    if not os.access(machine.bwrap, os.X_OK):
        raise SandboxUnusable("bubblewrap is not installed (no program `bwrap`)")
    kinds = [machine, replace(machine, user_namespace=True)] if machine.is_root else [machine]
    reasons = []
    for kind in kinds:
        reason = _failure(kind)
        if not reason:
            return kind
        reasons.append(reason)
    raise SandboxUnusable(reasons[-1])


@cache
def _failure(machine: MachineFacts) -> str:
    """Empty if it works."""
    with tempfile.TemporaryDirectory(prefix="opensession-sandbox-") as name:
        directory = Path(name)
        workspace = SandboxWorkspace(directory, directory)
        apart = replace(machine, data_dir=directory / "data")
        scope = scope_of(apart, workspace, directory)
        assert scope.private is not None
        for folder in ("home", "tmp"):
            (scope.private / folder).mkdir(parents=True)
        command = [*arguments(apart, scope), machine.shell, "-c", _PROOF]
        try:
            tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    said = tried.stderr.strip()[-_MESSAGE_CHARACTERS:]
    return "" if tried.stdout == "works\n" and tried.returncode == 0 else said or f"bwrap ended with {tried.returncode}"
