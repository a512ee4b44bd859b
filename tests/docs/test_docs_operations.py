"""What the page for operators shows: proxies that pass events on at once, under the public name; an identity provider."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import running_server
from doc_snippets import SHOWN_BASE, Block, blocks, matches
from identity_provider import identity_provider
from running_server import ROOT, RunningServer, clean_environment, free_port, needed, serving_here

NAME = "agent.example.com"
SECONDS = 5
"""An event that a proxy holds back would come with the next heartbeat, after 10 s, or not at all."""

Command = list[str]


def documented(kind: str) -> Block:
    page = (ROOT / "docs" / "operations.md").read_text()
    return next(block for block in blocks(page) if kind in (block.kind, block.language))


def installed(program: str) -> str:
    """Debian keeps nginx off the PATH."""
    return needed(program, path=os.environ["PATH"] + ":/usr/sbin")


def nginx(upstream: str, port: int, directory: Path) -> Command:
    """Without TLS, for which there is no certificate here."""
    program = installed("nginx")
    server = re.sub(r"^\s*ssl_certificate.*\n", "", documented("nginx").code, flags=re.MULTILINE)
    server = server.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace(SHOWN_BASE, upstream)
    places = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = directory / "nginx.conf"
    head = f"daemon off;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\nevents {{}}\n"
    config.write_text(f"{head}http {{\naccess_log off;\n{places}{server}}}\n")
    return [program, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(config)]


def caddy(upstream: str, port: int, directory: Path) -> Command:
    program = installed("caddy")
    site = (
        documented("caddy").code.replace(NAME, f"http://{NAME}:{port}").replace(SHOWN_BASE.removeprefix("http://"), upstream[7:])
    )
    config = directory / "Caddyfile"
    config.write_text(f"{{\n\tadmin off\n\tgrace_period 1s\n\tstorage file_system {directory}/caddy\n}}\n{site}")
    return [program, "run", "--adapter", "caddyfile", "--config", str(config)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with serving_here(tmp_path, OPENSESSION_PUBLIC_URL=f"https://{NAME}") as running:
        yield running


@pytest.mark.parametrize("proxy", [nginx, caddy], ids=["nginx", "caddy"])
def test_events_come_through_at_once(proxy: Callable[[str, int, Path], Command], server: RunningServer, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "proxy.log"
    running = running_server.start_serving(tmp_path, clean_environment(tmp_path), log, port, proxy(server.base, port, tmp_path))
    try:
        running_server.wait_until_it_answers(running, f"http://127.0.0.1:{port}", log)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers={"Host": NAME}, timeout=SECONDS) as client:
            session = client.post("/session", json={}).raise_for_status().json()
            with client.stream("GET", "/event") as events:
                assert "server.connected" in next(line for line in events.iter_lines() if line.startswith("data:"))
            shared = client.post(f"/session/{session['id']}/share").json()
        assert shared["share"]["url"].startswith(f"https://{NAME}/s/")
    finally:
        running_server.stop(running)


SHOWN_ISSUER = "https://login.example.com/realms/work"
SUBJECT = "248289761001"


def test_the_settings_let_the_providers_users_in(tmp_path: Path) -> None:
    for program in ("curl", "jq"):
        needed(program)
    commands = documented("sh oidc")
    assert commands.shown is not None
    with identity_provider() as issuer:
        settings = dict(
            line.split("=", 1) for line in documented("ini oidc").code.replace(SHOWN_ISSUER, issuer.issuer).splitlines()
        )
        with serving_here(tmp_path, **settings) as server:
            token = issuer.token(SUBJECT, realm_access={"roles": ["member"]})
            ran = subprocess.run(
                ["sh", "-e", "-c", commands.code],
                env=clean_environment(tmp_path / "home", S=server.base, JWT=token, PATH=os.environ["PATH"]),
                capture_output=True,
                text=True,
                timeout=60,
            )
    assert ran.returncode == 0, ran.stderr
    assert matches(commands.shown, ran.stdout), ran.stdout
