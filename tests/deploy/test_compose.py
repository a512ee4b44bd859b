"""deploy/compose.yaml and its Caddyfile: each value is known to the server; the same servers run behind Caddy."""

import os
import re
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import yaml
from deployment import COMMANDS, DOCKERFILE, is_known
from doc_snippets import blocks
from postgres import running_postgres
from redis_server import running_redis
from running_server import ROOT, clean_environment, free_port, needed, new_workspace, start_serving, stop, this_checkout

from app.api.security import is_open
from app.cli.serve import DEFAULT_PORT
from app.settings import Settings

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
OPERATIONS = {block.kind: block.code for block in blocks((ROOT / "docs" / "operations.md").read_text())}
CADDYFILE = (ROOT / "deploy" / "Caddyfile").read_text()
SERVICES: dict[str, Any] = COMPOSE["services"]
SERVERS = {name: service for name, service in SERVICES.items() if name.startswith("server-")}
PASSWORD = "secret"


def environment(**given: str) -> dict[str, str]:
    """Of a server, as Compose makes it of the variables that are `given`."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[3]
        found = given.get(name)
        assert found or (default is not None and match[2] != ":?"), f"{name} must be set"
        return found or default

    written = {name: text for name, text in SERVERS["server-1"]["environment"].items() if text is not None}
    return {name: re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", value, text) for name, text in written.items()}


def test_the_servers_are_alike_and_everything_they_are_told_is_known_and_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SERVERS["server-1"]
    assert len(SERVERS) == 3 and all(server == first for server in SERVERS.values())
    assert [name for name in first["environment"] if not is_known(name)] == []
    assert SERVICES["migrate"]["environment"] == first["environment"]
    with pytest.raises(AssertionError, match="OPENCODE_SERVER_PASSWORD"):
        environment()
    for name, value in environment(OPENCODE_SERVER_PASSWORD=PASSWORD).items():
        monkeypatch.setenv(name, value)
    settings, database = Settings(), SERVICES["postgres"]["environment"]
    assert settings.database_url == "postgresql+psycopg://opensession:opensession@postgres:5432/opensession"
    assert settings.redis_url == "redis://redis:6379/0" and {"postgres", "redis"} <= SERVICES.keys()
    assert settings.public_url == "http://localhost:4096"
    assert (database["POSTGRES_USER"], database["POSTGRES_DB"]) == ("opensession", "opensession")
    grace = int(first["stop_grace_period"].removesuffix("s"))
    assert grace >= int(first["environment"]["OPENSESSION_SHUTDOWN_SECONDS"]) + 10, "a turn has its grace period"


def test_the_commands_that_the_documentation_shows() -> None:
    (shown,) = [block.code for block in blocks((ROOT / "docs" / "scaling.md").read_text()) if block.kind == "sh compose"]
    password, *command = shown.split()
    assert password.startswith("OPENCODE_SERVER_PASSWORD=") and command[:2] == ["docker", "compose"]
    assert (ROOT / command[command.index("-f") + 1]).is_file()
    shown, image = OPERATIONS["sh docker"], DOCKERFILE.rpartition("\nFROM")[2]
    assert set(re.findall(r":(/\w+)", shown)) == set(re.findall(r"^(?:WORKDIR|VOLUME) (/\w+)$", image, re.MULTILINE))
    assert re.findall(r":(\d+) ", shown) == re.findall(r"^EXPOSE (\d+)$", image, re.MULTILINE)
    shown = OPERATIONS["sh postgres"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\.\[(\w+)\]", shown)) == {"postgres"} <= extras.keys()
    assert set(re.findall(r"bin/opensession (\w+)", shown)) == {"migrate", "serve"} <= COMMANDS
    assert all(map(is_known, re.findall(r"export (\w+)=", shown)))


def test_what_servers_share_wait_for_and_run_is_there() -> None:
    mounts = dict(reversed(volume.rsplit(":", 1)) for volume in SERVERS["server-1"]["volumes"])
    assert mounts["/data"] == "data" and "workspace" in mounts["/workspace"]
    assert {"data", "workspace"} <= COMPOSE["volumes"].keys()
    assert SERVERS["server-1"]["environment"]["OPENSESSION_DATA_DIR"] == "/data"
    assert "OPENSESSION_DATA_DIR=/data" in DOCKERFILE and "WORKDIR /workspace" in DOCKERFILE
    assert "requirements-replicas.lock" in DOCKERFILE
    assert SERVICES["migrate"]["command"][0] in COMMANDS and '"serve"' in DOCKERFILE
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= SERVICES.keys()


def test_caddy_asks_every_server_for_its_health() -> None:
    assert re.findall(r"server-\d+:\d+", CADDYFILE) == [f"{name}:{DEFAULT_PORT}" for name in SERVERS]
    (path,) = re.findall(r"health_uri (\S+)", CADDYFILE)
    assert is_open("GET", path, b"") and path == "/global/health"
    assert f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}" in SERVICES["caddy"]["ports"]


@dataclass
class Cluster:
    client: httpx2.Client
    processes: list[psutil.Popen]

    def replicas(self) -> list[dict[str, Any]]:
        return self.client.get("/global/health?replicas=1").raise_for_status().json()["replicas"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Compose's servers and Caddy, as processes of this machine."""
    with ExitStack() as stack:
        database, redis_url = stack.enter_context(running_postgres()), stack.enter_context(running_redis()).url
        told = {
            **environment(OPENCODE_SERVER_PASSWORD=PASSWORD),
            "OPENSESSION_DATABASE_URL": database.new_database(),
            "OPENSESSION_REDIS_URL": redis_url,
            "OPENSESSION_DATA_DIR": str(tmp_path / "data"),
        }
        serve, added = this_checkout()
        told = clean_environment(tmp_path, **added, **told)
        subprocess.run([*serve[:-3], *SERVICES["migrate"]["command"]], env=told, check=True, stdout=subprocess.DEVNULL)
        workspace, ports = new_workspace(tmp_path / "workspace"), [free_port() for _ in SERVERS]
        shown = re.search(r'CMD \["serve", (.*)\]$', DOCKERFILE, re.MULTILINE)
        assert shown
        options = shown[1].replace('"', "").replace(str(DEFAULT_PORT), "PORT").split(", ")
        log = tmp_path / "log"
        replicas = [start_serving(workspace, told, log, port, [*serve[:-2], *options]) for port in ports]
        public = free_port()
        proxy = start_serving(workspace, clean_environment(tmp_path), log, public, caddy(public, ports, tmp_path))
        for process in (*replicas, proxy):
            stack.callback(stop, process)
        client = stack.enter_context(
            httpx2.Client(base_url=f"http://localhost:{public}", auth=("opencode", PASSWORD), timeout=10)
        )
        yield Cluster(client, replicas)


def caddy(port: int, servers: list[int], directory: Path) -> list[str]:
    upstreams = iter(servers)
    config = re.sub(r"server-\d+:\d+", lambda _: f"127.0.0.1:{next(upstreams)}", CADDYFILE)
    config = re.sub(r"^:4096 ", f"http://localhost:{port} ", config, flags=re.MULTILINE)
    (directory / "Caddyfile").write_text(
        f"{{\n\tadmin off\n\tgrace_period 1s\n\tstorage file_system {directory}/caddy\n}}\n{config}"
    )
    return [needed("caddy"), "run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]


def eventually(condition: Callable[[], bool], log: Path, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_three_servers_behind_caddy_and_then_two(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    eventually(lambda: [each["alive"] for each in cluster.replicas()] == [True] * 3, log)
    eventually(lambda: {cluster.replicas()[0]["heartbeatAge"] < 4000 for _ in range(6)} == {True}, log)
    session = cluster.client.post("/session", json={"title": "Everywhere"}).raise_for_status().json()
    for _ in range(6):  # by turns of all three
        assert cluster.client.get(f"/session/{session['id']}").raise_for_status().json()["title"] == "Everywhere"
    cluster.processes[0].kill()
    eventually(lambda: sorted(each["alive"] for each in cluster.replicas()) == [False, True, True], log)
    assert [cluster.client.get("/session").status_code for _ in range(12)] == [200] * 12
    text = log.read_text()
    assert text.count("Mode: several servers on PostgreSQL") == 3 and text.count("Redis: Redis ") == 3
    assert "WARNING: " not in text and os.listdir(tmp_path / "data")
