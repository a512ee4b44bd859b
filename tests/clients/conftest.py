"""What the tests of clients share: the npm packages that they need."""

import fcntl
import subprocess
from pathlib import Path

import pytest
from running_server import needed, skip_or_fail

CLIENTS = Path(__file__).parent


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """tests/clients with the packages of its lock file installed."""
    for program in ("node", "npm"):
        needed(program)
    lock, installed = CLIENTS / "package-lock.json", CLIENTS / "node_modules" / ".package-lock.json"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # one of the processes that run tests installs, the others wait for it
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            result = subprocess.run(["npm", "ci", "--silent"], cwd=CLIENTS, capture_output=True, text=True, timeout=300)
            if result.returncode != 0:
                skip_or_fail(f"npm could not install the clients: {result.stderr.strip()[-300:]}")
    return CLIENTS
