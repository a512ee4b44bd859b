"""An organisation that the user has signed in to gives every directory the lowest layer of its configuration."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from running_app import make_workspace, running_app


class Organisation:
    """Its web server: `config` is what it answers, None for a failure; `asked` counts the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.config: dict[str, Any] | None = {}
        self.asked = 0

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked += 1
        if self.config is None or path != "/.well-known/opencode":
            return 503, b"later"
        return 200, json.dumps({"auth": {"env": "ORG_TOKEN"}, "config": self.config}).encode()


@pytest.fixture
def organisation() -> Iterator[Organisation]:
    with serving() as found:
        yield found


@contextmanager
def serving() -> Iterator[Organisation]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = found.answer(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Organisation(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def signed_in(base: Path, url: str) -> None:
    (base / "data").mkdir(mode=0o700, exist_ok=True)
    entry = {"type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken"}
    (base / "data" / "auth.json").write_text(json.dumps({url: entry}))


PROVIDER = {"npm": "@ai-sdk/openai-compatible", "env": ["ORG_TOKEN"], "options": {"baseURL": "http://127.0.0.1:9/v1"}}


async def test_it_is_the_lowest_layer_and_its_token_is_an_environment_variable(
    tmp_path: Path, organisation: Organisation
) -> None:
    headers = {"Authorization": "Bearer {env:ORG_TOKEN}"}
    organisation.config = {
        "username": "theirs",
        "theme": "theirs",
        "mcp": {"wiki": {"type": "remote", "url": "http://127.0.0.1:9", "headers": headers, "enabled": False}},
        "provider": {"org": {**PROVIDER, "models": {"m": {}}}},
    }
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "opencode.json").write_text('{"theme": "mine", "instructions": ["{env:ORG_TOKEN}.md"]}')
    async with running_app(tmp_path, workspace=workspace) as app:
        signed_in(tmp_path, organisation.url)
        loaded = (await app.services.instances.get()).config
        config = await app.get("/config")
        assert (config["theme"], config["username"]) == ("mine", "theirs")
        assert config["instructions"] == ["t0ken.md"]
        assert loaded.mcp["wiki"].headers == {"Authorization": "Bearer t0ken"}  # type: ignore[union-attr]
        assert "t0ken" not in json.dumps(config["mcp"])
        assert "org" in (await app.get("/provider"))["connected"]
        assert organisation.asked == 1


async def test_one_that_cannot_be_reached_is_reported_by_its_address_and_asked_again_later(
    tmp_path: Path, organisation: Organisation
) -> None:
    organisation.config = None
    async with running_app(tmp_path) as app:
        signed_in(tmp_path, organisation.url)
        for _ in range(2):
            error = await app.get("/config", expect=500)
            assert error["name"] == "ConfigInvalidError" and organisation.url in error["data"]["path"]
        assert organisation.asked == 1, "not with every request"
        (tmp_path / "data" / "auth.json").unlink()
        await app.get("/config")


async def test_a_client_signs_the_user_in_and_out(tmp_path: Path, organisation: Organisation) -> None:
    organisation.config = {"theme": "{env:ORG_TOKEN}"}
    address = f"/auth/{quote(organisation.url, safe='')}"
    async with running_app(tmp_path) as app:
        assert await app.call("PUT", address, {"type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken"}) is True
        assert (await app.get("/config"))["theme"] == "t0ken"
        assert await app.call("DELETE", address) is True
        assert "theme" not in await app.get("/config")
