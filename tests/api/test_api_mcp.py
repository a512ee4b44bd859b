"""MCP servers over HTTP: status, switching on and off, adding, resources, and signing in."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from loopback import QuietHandler, on_loopback
from mcp_servers import over_http, plain, running, visit
from running_app import RunningApp, running_app
from running_server import free_port
from turns import configured

CONNECTED, DISABLED, NEEDS_AUTH = [{"status": status} for status in ("connected", "disabled", "needs_auth")]
AUTH = "/mcp/web/auth"

SERVED_WITH = {"config": {"mcp": {"plain": plain(), "off": plain(enabled=False)}}}


@pytest.fixture(scope="module")
def oauth() -> Iterator[str]:
    """The address of a server that wants its users to sign in."""
    with over_http("oauth") as url:
        yield url


async def remote(app: RunningApp, url: str, **fields: Any) -> Any:
    """The status of a remote server that is added."""
    config = {"type": "remote", "url": url, **fields}
    return (await app.post("/mcp", {"name": "web", "config": config}))["web"]


async def status(app: RunningApp) -> Any:
    return (await app.get("/mcp"))["web"]


async def refused(app: RunningApp, path: str = AUTH, body: Any = None) -> str:
    error = await app.post(path, body, expect=400)
    assert error["name"] == "BadRequest"
    return str(error["errors"][0]["message"])


async def sign_in(app: RunningApp) -> str:
    """Where the browser is sent back to."""
    return await visit((await app.post(AUTH))["authorizationUrl"])


async def test_servers_are_switched_off_and_on_with_a_notice_and_by_the_configuration(app: RunningApp) -> None:
    assert await app.get("/mcp") == {"plain": CONNECTED, "off": DISABLED}
    async with app.events() as events:
        assert await app.post("/mcp/plain/disconnect") is True
        assert (await events.until("mcp.tools.changed")).properties == {"server": "plain"}
    assert await app.post("/mcp/off/connect") is True
    assert await app.get("/mcp") == {"plain": DISABLED, "off": CONNECTED}
    assert len(running(app.directory)) == 1
    for path, body in (("/mcp/plain/auth", None), ("/mcp/plain/auth/callback", {"code": "x"})):
        await refused(app, path, body)
    await app.post("/mcp/plain/connect")
    await app.call("PATCH", "/config", {"mcp": {"plain": {"enabled": False}, "third": plain()}})
    assert await app.get("/mcp") == {"plain": DISABLED, "off": CONNECTED, "third": CONNECTED}


async def test_servers_are_added_and_replaced_until_the_directory_is_closed(app: RunningApp) -> None:
    added = await app.post("/mcp", {"name": "more", "config": plain()})
    assert added == {"plain": CONNECTED, "off": DISABLED, "more": CONNECTED}
    failed = (await app.post("/mcp", {"name": "more", "config": {"type": "local", "command": ["false"]}}))["more"]
    assert failed["status"] == "failed" and failed["error"]
    await app.post("/instance/dispose")
    assert set(await app.get("/mcp")) == {"plain", "off"}


async def test_a_servers_name_may_have_a_slash(app: RunningApp) -> None:
    await app.post("/mcp", {"name": "@own/tools", "config": plain()})
    for verb, expected in (("disconnect", DISABLED), ("connect", CONNECTED)):
        await app.post(f"/mcp/@own%2Ftools/{verb}")
        assert (await app.get("/mcp"))["@own/tools"] == expected
    assert await app.call("DELETE", "/mcp/@own%2Ftools/auth") == {"success": True}


async def test_resources_are_listed_by_server_and_name(app: RunningApp) -> None:
    notes = {"name": "notes", "uri": "demo://notes", "description": "What was noted", "mimeType": "application/json"}
    pixel = {"name": "pixel", "uri": "demo://pixel", "mimeType": "image/png"}
    of_plain = {f"plain:{each['name']}": {**each, "client": "plain"} for each in (notes, pixel)}
    assert await app.get("/experimental/resource") == of_plain
    await app.post("/mcp", {"name": "my srv", "config": plain()})
    listed = await app.get("/experimental/resource")
    of_other = {key: listed[key]["client"] for key in listed if key.startswith("my")}
    assert of_other == {"my_srv:notes": "my srv", "my_srv:pixel": "my srv"}, "the letters of a command's name"


# Signing in.


async def test_the_user_signs_in_in_the_browser(app: RunningApp, oauth: str) -> None:
    assert await remote(app, oauth) == NEEDS_AUTH
    back = await sign_in(app)
    assert back.startswith("http://127.0.0.1:4096/mcp/oauth/callback?")
    assert await status(app) == NEEDS_AUTH
    answer = await app.client.get(back)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert await status(app) == CONNECTED
    assert (app.data_dir / "mcp-auth.json").stat().st_mode & 0o777 == 0o600
    assert await app.post(AUTH) == {"authorizationUrl": "", "oauthState": ""}
    assert await app.call("DELETE", AUTH) == {"success": True}
    assert await status(app) == NEEDS_AUTH


async def test_a_client_hands_over_the_code_itself_or_waits_for_the_user(app: RunningApp, oauth: str) -> None:
    await remote(app, oauth)
    code = {"code": parse_qs(urlsplit(await sign_in(app)).query)["code"][0]}
    assert await app.post(f"{AUTH}/callback", code) == CONNECTED
    await refused(app, f"{AUTH}/callback", code)
    await app.call("DELETE", AUTH)
    async with app.events() as events:
        waiting = asyncio.create_task(app.post(f"{AUTH}/authenticate"))
        announced = (await events.until("mcp.browser.open.failed")).properties
        assert announced["mcpName"] == "web"
        await app.client.get(await visit(announced["url"]))
        assert await waiting == CONNECTED


@pytest.mark.parametrize("setting", ["callbackPort", "redirectUri"])
async def test_the_browser_comes_back_to_a_port_of_its_own(app: RunningApp, oauth: str, setting: str) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/mcp/oauth/callback" if setting == "callbackPort" else f"http://localhost:{port}/back"
    assert await remote(app, oauth, oauth={setting: port if setting == "callbackPort" else address}) == NEEDS_AUTH
    await app.post(AUTH)  # given up for the next one
    back = await sign_in(app)
    assert back.startswith(f"{address}?")
    async with httpx2.AsyncClient() as browser:
        assert "No sign-in waits for this" in (await browser.get(f"{address}?code=x&state=foreign")).text
        assert "<p>This address has no state" in (await browser.get(f"{address}?code=x")).text
        assert "Signed in" in (await browser.get(back)).text
        assert await status(app) == CONNECTED
        with pytest.raises(httpx2.ConnectError):
            await browser.get(back)


async def test_a_port_or_address_for_the_sign_in_that_cannot_be_is_named(app: RunningApp, oauth: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, address = taken.getsockname()[1], "http://127.0.0.1:70000/back"
        for settings, said in (
            ({"callbackPort": port}, f"port {port}, of oauth.callbackPort"),
            ({"redirectUri": address}, f"oauth.redirectUri is no address: {address}"),
        ):
            await remote(app, oauth, oauth=settings)
            assert said in await refused(app)


async def test_a_refused_sign_in_and_a_foreign_state_connect_nothing(app: RunningApp, oauth: str) -> None:
    await remote(app, oauth)
    begun = await app.post(AUTH)
    state = begun["oauthState"]
    assert parse_qs(urlsplit(begun["authorizationUrl"]).query)["state"] == [state]
    assert (await app.client.get("/mcp/oauth/callback?code=x&state=foreign")).status_code == 404
    denied = await app.client.get(f"/mcp/oauth/callback?state={state}&error=<denied>")
    assert denied.status_code == 400 and "&lt;denied&gt;" in denied.text
    assert (await status(app))["status"] == "failed" and "denied" in (await status(app))["error"]


async def test_tokens_that_are_over_are_renewed_also_after_a_restart(tmp_path: Path) -> None:
    with over_http("oauth", "expiring") as url:
        workspace = configured(tmp_path, {"mcp": {"web": {"type": "remote", "url": url}}})
        async with running_app(tmp_path, workspace=workspace) as app:
            await app.client.get(await sign_in(app))
            assert await status(app) == CONNECTED
        await asyncio.sleep(1.1)  # the life of the first token
        async with running_app(tmp_path, workspace=workspace) as app:
            assert await status(app) == CONNECTED
        [stored] = json.loads((app.data_dir / "mcp-auth.json").read_text()).values()
        assert stored["tokens"]["expires_in"] == 3600


async def test_a_server_that_takes_no_sign_in_is_a_bad_request(app: RunningApp) -> None:
    with over_http() as url:
        for fields in ({"oauth": False}, {"headers": {"Authorization": "Bearer own"}}):
            assert await remote(app, url, **fields) == CONNECTED
            await refused(app)
    assert (await remote(app, url))["status"] == "failed"
    assert "could not begin" in await refused(app)


class LetsNobodyIn(QuietHandler):
    """A server that wants a key and knows nothing of OAuth."""

    def do_POST(self) -> None:
        self.body()
        self.reply(b"", status=401 if self.path == "/mcp" else 404)

    def do_GET(self) -> None:
        self.reply(b"", status=404)


async def test_a_server_without_oauth_that_denies_access_says_so(app: RunningApp) -> None:
    with on_loopback(LetsNobodyIn) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        assert await remote(app, url) == NEEDS_AUTH
        await refused(app)
        assert (await status(app))["status"] == "needs_client_registration"
        assert (await remote(app, url, oauth=False))["status"] == "failed"
