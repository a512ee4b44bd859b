"""MCP servers over HTTP: status, switching on and off, adding, resources, and signing in."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp_servers import over_http, plain, running, visit
from running_app import RunningApp, running_app
from running_server import free_port
from turns import configured

CONNECTED = {"status": "connected"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    config = {"mcp": {"plain": plain(), "off": plain(enabled=False)}}
    async with running_app(tmp_path, workspace=configured(tmp_path, config)) as running:
        yield running


async def remote(app: RunningApp, url: str, **fields: Any) -> dict[str, Any]:
    """The status of a remote server that is added."""
    config = {"type": "remote", "url": url, **fields}
    found: dict[str, Any] = (await app.post("/mcp", {"name": "web", "config": config}))["web"]
    return found


async def test_servers_are_switched_off_and_on(app: RunningApp) -> None:
    assert await app.get("/mcp") == {"plain": CONNECTED, "off": {"status": "disabled"}}
    assert await app.post("/mcp/plain/disconnect") is True
    assert await app.post("/mcp/off/connect") is True
    assert await app.get("/mcp") == {"plain": {"status": "disabled"}, "off": CONNECTED}
    assert len(running(app.directory)) == 1


async def test_a_local_server_takes_no_sign_in(app: RunningApp) -> None:
    assert (await app.post("/mcp/plain/auth", expect=400))["name"] == "BadRequest"
    assert (await app.post("/mcp/plain/auth/callback", {"code": "x"}, expect=400))["name"] == "BadRequest"


async def test_servers_are_added_and_replaced_until_the_directory_is_closed(app: RunningApp) -> None:
    added = await app.post("/mcp", {"name": "more", "config": plain()})
    assert added == {"plain": CONNECTED, "off": {"status": "disabled"}, "more": CONNECTED}
    failed = (await app.post("/mcp", {"name": "more", "config": {"type": "local", "command": ["false"]}}))["more"]
    assert failed["status"] == "failed" and failed["error"]
    await app.post("/instance/dispose")
    assert set(await app.get("/mcp")) == {"plain", "off"}


async def test_resources_are_listed_by_server_and_name(app: RunningApp) -> None:
    assert await app.get("/experimental/resource") == {
        "plain:notes": {
            "name": "notes",
            "uri": "demo://notes",
            "description": "What was noted",
            "mimeType": "application/json",
            "client": "plain",
        },
        "plain:pixel": {"name": "pixel", "uri": "demo://pixel", "mimeType": "image/png", "client": "plain"},
    }
    await app.post("/mcp", {"name": "my srv", "config": plain()})
    listed = await app.get("/experimental/resource")
    of_other = {key: listed[key]["client"] for key in listed if key.startswith("my")}
    assert of_other == {"my_srv:notes": "my srv", "my_srv:pixel": "my srv"}, "the letters of a command's name"


async def test_a_change_of_the_configuration_reaches_the_servers(app: RunningApp) -> None:
    await app.get("/mcp")
    await app.call("PATCH", "/config", {"mcp": {"plain": {"enabled": False}, "third": plain()}})
    assert await app.get("/mcp") == {"plain": {"status": "disabled"}, "off": {"status": "disabled"}, "third": CONNECTED}


async def test_clients_are_notified_when_a_server_s_tools_change(app: RunningApp) -> None:
    async with app.events() as events:
        await app.get("/mcp")
        await app.post("/mcp/plain/disconnect")
        await events.until("mcp.tools.changed", count=2)
        assert events.of_type("mcp.tools.changed")[-1].properties == {"server": "plain"}


async def test_the_user_signs_in_in_the_browser(app: RunningApp) -> None:
    with over_http("oauth") as url:
        assert await remote(app, url) == {"status": "needs_auth"}
        page = (await app.post("/mcp/web/auth"))["authorizationUrl"]
        back = await visit(page)
        assert back.startswith("http://127.0.0.1:4096/mcp/oauth/callback?")
        assert (await app.get("/mcp"))["web"] == {"status": "needs_auth"}
        answer = await app.client.get(back)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
        assert (await app.get("/mcp"))["web"] == CONNECTED
        assert (app.data_dir / "mcp-auth.json").stat().st_mode & 0o777 == 0o600
        assert await app.post("/mcp/web/auth") == {"authorizationUrl": "", "oauthState": ""}
        assert await app.call("DELETE", "/mcp/web/auth") == {"success": True}
        assert (await app.get("/mcp"))["web"] == {"status": "needs_auth"}


async def test_a_client_hands_over_the_code_itself_or_waits_for_the_user(app: RunningApp) -> None:
    with over_http("oauth") as url:
        await remote(app, url)
        back = await visit((await app.post("/mcp/web/auth"))["authorizationUrl"])
        code = parse_qs(urlsplit(back).query)["code"][0]
        assert await app.post("/mcp/web/auth/callback", {"code": code}) == CONNECTED
        assert (await app.post("/mcp/web/auth/callback", {"code": code}, expect=400))["name"] == "BadRequest"
        await app.call("DELETE", "/mcp/web/auth")
        async with app.events() as events:
            waiting = asyncio.create_task(app.post("/mcp/web/auth/authenticate"))
            announced = (await events.until("mcp.browser.open.failed")).properties
            assert announced["mcpName"] == "web"
            await app.client.get(await visit(announced["url"]))
            assert await waiting == CONNECTED


@pytest.mark.parametrize("setting", ["callbackPort", "redirectUri"])
async def test_the_browser_comes_back_to_a_port_of_its_own(app: RunningApp, setting: str) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/mcp/oauth/callback" if setting == "callbackPort" else f"http://localhost:{port}/back"
    own = {"callbackPort": port} if setting == "callbackPort" else {"redirectUri": address}
    with over_http("oauth") as url:
        assert await remote(app, url, oauth=own) == {"status": "needs_auth"}
        await app.post("/mcp/web/auth")  # given up for the next one
        back = await visit((await app.post("/mcp/web/auth"))["authorizationUrl"])
        assert back.startswith(f"{address}?")
        async with httpx2.AsyncClient() as browser:
            assert "No sign-in waits for this" in (await browser.get(f"{address}?code=x&state=foreign")).text
            assert "<p>This address has no state" in (await browser.get(f"{address}?code=x")).text
            assert "Signed in" in (await browser.get(back)).text
            assert (await app.get("/mcp"))["web"] == CONNECTED
            with pytest.raises(httpx2.ConnectError):
                await browser.get(back)


async def test_a_port_or_address_for_the_sign_in_that_cannot_be_is_named(app: RunningApp) -> None:
    with over_http("oauth") as url, socket.create_server(("127.0.0.1", 0)) as taken:
        port, address = taken.getsockname()[1], "http://127.0.0.1:70000/back"
        for oauth, said in (
            ({"callbackPort": port}, f"port {port}, of oauth.callbackPort"),
            ({"redirectUri": address}, f"oauth.redirectUri is no address: {address}"),
        ):
            await remote(app, url, oauth=oauth)
            assert said in (await app.post("/mcp/web/auth", expect=400))["errors"][0]["message"]


async def test_a_refused_sign_in_and_a_foreign_state_connect_nothing(app: RunningApp) -> None:
    with over_http("oauth") as url:
        await remote(app, url)
        begun = await app.post("/mcp/web/auth")
        state = begun["oauthState"]
        assert parse_qs(urlsplit(begun["authorizationUrl"]).query)["state"] == [state]
        assert (await app.client.get("/mcp/oauth/callback?code=x&state=foreign")).status_code == 404
        refused = await app.client.get(f"/mcp/oauth/callback?state={state}&error=<denied>")
        assert refused.status_code == 400 and "&lt;denied&gt;" in refused.text
        status = (await app.get("/mcp"))["web"]
    assert status["status"] == "failed" and "denied" in status["error"]


async def test_tokens_that_are_over_are_renewed_also_after_a_restart(tmp_path: Path) -> None:
    with over_http("oauth", "expiring") as url:
        workspace = configured(tmp_path, {"mcp": {"web": {"type": "remote", "url": url}}})
        async with running_app(tmp_path, workspace=workspace) as app:
            back = await visit((await app.post("/mcp/web/auth"))["authorizationUrl"])
            await app.client.get(back)
            assert await app.get("/mcp") == {"web": CONNECTED}
        await asyncio.sleep(1.1)  # the life of the first token
        async with running_app(tmp_path, workspace=workspace) as app:
            assert await app.get("/mcp") == {"web": CONNECTED}
        [stored] = json.loads((app.data_dir / "mcp-auth.json").read_text()).values()
        assert stored["tokens"]["expires_in"] == 3600


async def test_a_server_that_takes_no_sign_in_is_a_bad_request(app: RunningApp) -> None:
    with over_http() as url:
        assert await remote(app, url, oauth=False) == CONNECTED
        assert (await app.post("/mcp/web/auth", expect=400))["name"] == "BadRequest"
        assert await remote(app, url, headers={"Authorization": "Bearer own"}) == CONNECTED
        assert (await app.post("/mcp/web/auth", expect=400))["name"] == "BadRequest"
    assert (await remote(app, url))["status"] == "failed"
    refused = await app.post("/mcp/web/auth", expect=400)
    assert "could not begin" in refused["errors"][0]["message"]


class LetsNobodyIn(BaseHTTPRequestHandler):
    """A server that wants a key and knows nothing of OAuth."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.send_response(401 if self.path == "/mcp" else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return None


async def test_a_server_without_oauth_that_denies_access_says_so(app: RunningApp) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), LetsNobodyIn) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        assert await remote(app, url) == {"status": "needs_auth"}
        assert (await app.post("/mcp/web/auth", expect=400))["name"] == "BadRequest"
        assert (await app.get("/mcp"))["web"]["status"] == "needs_client_registration"
        assert (await remote(app, url, oauth=False))["status"] == "failed"
        server.shutdown()
