"""What the tests of clients share: the npm packages that they need, and a server."""

import fcntl
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from acp_editor import Desk
from model_server import ModelServer, model_server
from running_server import RunningServer, needed, new_workspace, serving_here, skip_or_fail

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


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One of the module's own. Its `CONFIG` is the server's configuration, its `SCRIPT` the turns that the model plays."""
    config, turns = (getattr(request.module, name, None) for name in ("CONFIG", "SCRIPT"))
    environment = {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "SHELL": "/bin/sh"} if config else {}
    with serving_here(tmp_path_factory.mktemp("server"), turns=turns, **environment) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest.fixture(scope="module")
def call(server: RunningServer) -> Iterator[Callable[..., Any]]:
    """Asks the server: `call("GET", "/session")` is what it answers."""
    with httpx2.Client(base_url=server.base, timeout=180) as http:

        def asked(method: str, path: str, body: Any = None) -> Any:
            answer = http.request(method, path, json=body).raise_for_status()
            return answer.json() if answer.content.strip() else None

        yield asked


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(new_workspace(tmp_path / "workspace"), tmp_path / "home")
