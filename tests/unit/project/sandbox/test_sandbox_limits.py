"""A fork bomb and a command that takes memory without end, as an unprivileged user: they end, and leave the rest alone."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sandboxed import needs_sandbox

from app.project.sandbox.bubblewrap import arguments
from app.project.sandbox.machine import SandboxUnusable, find_facts, usable
from app.project.sandbox.scope import MachineFacts, SandboxWorkspace, scope_of

pytestmark = needs_sandbox

NOBODY = 65534
PROCESSES = 40
MEGABYTES = 200
HOG = """
held = []
try:
    for _ in range(4000):
        held.append(b"x" * 2**20)
except MemoryError:
    print(len(held))
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Reachable for the other user, as pytest's own directories are not."""
    with tempfile.TemporaryDirectory(prefix="opensession-limits-") as name:
        (Path(name) / "project").mkdir()
        os.chmod(name, 0o755)
        yield Path(name)


def limited(base: Path) -> MachineFacts:
    facts = find_facts(base / "home", base / "data", [], {"PATH": "/usr/bin:/bin"})
    return replace(facts, is_root=False, memory_kilobytes=MEGABYTES * 1024, processes=PROCESSES)


def run(base: Path, command: str) -> subprocess.CompletedProcess[str]:
    machine, workspace = limited(base), SandboxWorkspace(base / "project", base / "project")
    scope = scope_of(machine, workspace, workspace.directory)
    for folder in ("home", "tmp"):
        (scope.private / folder).mkdir(parents=True, exist_ok=True)
    is_root = os.geteuid() == 0
    for path in (base, *base.rglob("*")) if is_root else ():
        os.chown(path, NOBODY, NOBODY)
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}
    argv = [*arguments(machine, scope), "/bin/bash", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd="/", env={"PATH": "/usr/bin:/bin"}, **user)


def test_a_fork_bomb_ends_and_memory_without_end_is_refused(base: Path) -> None:
    tried = run(base, "echo works; cat /proc/self/oom_score_adj")
    if not tried.stdout.startswith("works\n"):
        pytest.skip(f"no user namespaces for other users: {tried.stderr}")
    assert tried.stdout == "works\n1000\n", "it is the first to go when memory runs out"
    bomb = "bomb() { bomb | bomb & }; bomb; for i in $(seq 60); do sleep 5 & done; jobs -r | wc -l; kill $(jobs -p) 2>/dev/null"
    began = time.monotonic()
    ended = run(base, f"( {bomb} ); echo over")
    assert "Resource temporarily unavailable" in ended.stderr, ended
    assert time.monotonic() - began < 100
    (base / "project" / "hog.py").write_text(HOG)
    ended = run(base, "/usr/bin/python3 hog.py")
    assert 0 < int(ended.stdout) < MEGABYTES, ended


def test_where_a_container_allows_no_namespaces_the_reason_is_told(base: Path) -> None:
    with pytest.raises(SandboxUnusable, match="bwrap"):
        usable(replace(limited(base), bwrap="/bin/false"))
