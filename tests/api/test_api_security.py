"""Who may talk to the server, on every route: Host, Origin, content type, password."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from every_route import WRITING, every_route, unknown
from running_app import RunningApp, running_app

from app.api.security import is_loopback
from app.main import create_app
from app.settings import Settings
from app.users import login

ROOT = Path(__file__).parents[2]
OURS = "http://127.0.0.1:4096"
LISTED = "https://app.example.com"
FOREIGN = "https://evil.example"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module", name="every_route")
def unknown_routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """With something in the place of each parameter that no route finds."""
    directory = tmp_path_factory.mktemp("routes")
    app = create_app(Settings(data_dir=directory / "data"), workspace=directory)
    app.state.server.store._database.close()
    return [(method, unknown(path)) for method, path in every_route(app)]


def error_name(body: dict[str, Any]) -> str:
    """A tag in the second API."""
    return str(body["_tag"] if "_tag" in body else body["name"])


async def statuses(
    app: RunningApp, routes: list[tuple[str, str]], headers: dict[str, str]
) -> dict[tuple[str, str], tuple[int, str]]:
    """(status, error name or tag) of each route; a stream is left as soon as it answers."""
    answered = {}
    for method, path in routes:
        async with app.client.stream(method, path, headers=headers, content=b"{" if method in WRITING else None) as response:
            refused = response.status_code in (401, 403, 413, 415)
            name = error_name(json.loads(await response.aread())) if refused else ""
            answered[method, path] = (response.status_code, name)
    return answered


# Host.


async def test_every_route_refuses_a_host_that_is_not_this_servers(app: RunningApp, every_route: list[tuple[str, str]]) -> None:
    answered = await statuses(app, every_route, {"host": "evil.example:4096", **JSON})
    assert set(answered.values()) == {(403, "HostForbiddenError")}


async def test_hosts_that_name_this_server_and_others(tmp_path: Path) -> None:
    ours = ("127.0.0.1", "127.0.0.1:4096", "localhost:1", "LOCALHOST", "[::1]:4096", "reach.example:443")
    others = ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.7"]
    others += ["[", "[::2]", "0.0.0.0", "127.0.0.2", "x\x7f"]
    async with running_app(tmp_path, public_url="https://reach.example/base") as app:
        for host in ours:
            assert (await app.client.get("/global/health", headers={"host": host})).status_code == 200, host
        for host in others:
            response = await app.client.get("/global/health", headers={"host": host})
            assert response.status_code == 403 and response.json()["name"] == "HostForbiddenError", host
    async with running_app(tmp_path / "for all addresses", hostname="0.0.0.0") as app:
        for host, status in (("192.168.1.7:4096", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            assert (await app.client.get("/global/health", headers={"host": host})).status_code == status, host


# Origin.


async def test_no_route_lets_a_foreign_page_write(app: RunningApp, every_route: list[tuple[str, str]]) -> None:
    writing = [route for route in every_route if route[0] in WRITING]
    for content_type in ("application/json", "text/plain"):
        answered = await statuses(app, writing, {"origin": FOREIGN, "content-type": content_type})
        assert set(answered.values()) == {(403, "OriginForbiddenError")}
    assert await app.get("/session") == []


async def test_no_route_lets_a_foreign_page_read(app: RunningApp, every_route: list[tuple[str, str]]) -> None:
    for method, path in every_route:
        async with app.client.stream(method, path, headers={"origin": FOREIGN, **JSON}) as response:
            assert not [name for name in response.headers if name.startswith("access-control-")], (method, path)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
async def test_no_route_is_asked_by_what_a_foreign_page_embeds_or_leads_to(
    app: RunningApp, every_route: list[tuple[str, str]], site: str, mode: str
) -> None:
    """Such a request has no Origin. It would open a directory, and start its MCP servers."""
    embedded = {"sec-fetch-site": site, "sec-fetch-mode": mode, **JSON}
    answered = await statuses(app, [(method, path) for method, path in every_route if method == "GET"], embedded)
    served = {path for (_, path), answer in answered.items() if answer != (403, "OriginForbiddenError")}
    assert all(
        path in ("/", "/doc", "/global/health", "/mcp/oauth/callback") or path.startswith(("/s/", "/page/")) for path in served
    )


async def test_what_the_page_its_user_and_a_listed_page_ask_for_is_served(tmp_path: Path) -> None:
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        for headers in (
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "same-origin"},
            {"sec-fetch-site": "cross-site", "origin": LISTED},
        ):
            assert (await app.client.get("/session", headers=headers)).status_code == 200, headers


async def write_from(app: RunningApp, origin: str) -> httpx2.Response:
    return await app.client.post("/session", json={}, headers={"origin": origin})


LOOPBACK = ["http://localhost:3000", "http://localhost", "https://localhost:8443", "http://127.0.0.1:5173", "http://[::1]:3000"]
NEAR_LISTED = [LISTED + ".evil.example", "http://app.example.com", LISTED + ":8443", LISTED + "/"]
NEAR_LOOPBACK = [
    "http://localhost.evil.example",
    "http://localhost:3000.evil.example",
    "http://evil.example:localhost",
    "http://sub.localhost:3000",
    "http://localhost@evil.example",
    "http://evil.example@localhost",
    "http://localhost:3000/",
    "http://localhost:3000\n",
    "http://127.0.0.1.evil.example",
    "http://127.0.0.2:3000",
    "http://[::2]",
    "file://localhost",
    "localhost:3000",
    "loopback",
]
NO_PAGES = [FOREIGN, "null", "", "x", "http://[bad"]


@pytest.mark.parametrize(
    ("listed", "may_write", "may_not"),
    [
        (f"{LISTED}, https://second.example", [LISTED, "https://second.example"], [*NEAR_LISTED, *LOOPBACK, *NO_PAGES]),
        (f"loopback, {LISTED}", [*LOOPBACK, LISTED], [*NEAR_LISTED, *NEAR_LOOPBACK, *NO_PAGES]),
        ("", [], [LISTED, *LOOPBACK, *NO_PAGES]),
    ],
    ids=["pages", "pages of this machine", "none"],
)
async def test_origins_are_matched_exactly(tmp_path: Path, listed: str, may_write: list[str], may_not: list[str]) -> None:
    async with running_app(tmp_path, cors_origins=listed) as app:
        for origin in may_write:
            response = await write_from(app, origin)
            assert response.status_code == 200 and response.headers["access-control-allow-origin"] == origin
            assert response.headers["vary"] == "Origin"
            assert "access-control-allow-credentials" not in response.headers
            assert "X-Next-Cursor" in response.headers["access-control-expose-headers"]
        for origin in may_not:
            response = await write_from(app, origin)
            assert response.status_code == 403 and "access-control-allow-origin" not in response.headers, origin
        assert (await write_from(app, OURS)).status_code == 200, "a page needs no listing for its own server"
        assert len(await app.get("/session")) == len(may_write) + 1


async def test_the_refusal_names_the_origin_and_the_setting(app: RunningApp) -> None:
    for origin in (FOREIGN, *LOOPBACK):
        message = (await write_from(app, origin)).json()["data"]["message"]
        assert f"`{origin}`" in message and "OPENSESSION_CORS_ORIGINS" in message
        assert ("`loopback`" in message) == (origin in LOOPBACK)


async def test_errors_too_are_readable_by_listed_origins(tmp_path: Path) -> None:
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        for path in ("/session/ses_nope", "/nowhere"):
            response = await app.client.get(path, headers={"origin": LISTED})
            assert response.status_code == 404 and response.headers["access-control-allow-origin"] == LISTED


async def test_a_preflight(tmp_path: Path) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-opencode-directory"}
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        listed = await app.client.options("/session", headers={"origin": LISTED, **wanted})
        assert listed.status_code == 200
        assert listed.headers["access-control-allow-origin"] == LISTED
        assert listed.headers["access-control-allow-headers"] == wanted["access-control-request-headers"]
        assert {"POST", "DELETE"} <= set(listed.headers["access-control-allow-methods"].split(", "))
        foreign = await app.client.options("/session", headers={"origin": FOREIGN, **wanted})
        assert foreign.status_code == 400 and "access-control-allow-origin" not in foreign.headers
    async with running_app(tmp_path / "none listed") as app:
        foreign = await app.client.options("/session", headers={"origin": FOREIGN, **wanted})
        assert foreign.status_code == 403 and "access-control-allow-origin" not in foreign.headers


# Content type.


async def test_no_route_takes_a_body_that_a_page_may_send_without_asking(
    app: RunningApp, every_route: list[tuple[str, str]]
) -> None:
    writing = [route for route in every_route if route[0] in WRITING]
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"):
        answered = await statuses(app, writing, {"content-type": content_type})
        assert set(answered.values()) == {(415, "UnsupportedMediaTypeError")}


# Password.


def basic(login: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(login.encode()).decode()}


async def test_every_route_wants_the_password(
    tmp_path: Path, every_route: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "pässword:with colon")
    async with running_app(tmp_path) as app:
        preflights = [("OPTIONS", "/session"), ("GET", "/nowhere")]
        answered = await statuses(app, [*every_route, *preflights], JSON)
        without = {route for route, status in answered.items() if status != (401, "UnauthorizedError")}
        assert {path for _, path in without} == {path for _, path in every_route if path.startswith(("/s/", "/page/"))} | {
            "/global/health",
            "/",
        }
        assert {method for method, _ in without} == {"GET"}
        response = await app.client.get("/session")
        assert response.headers["www-authenticate"].startswith("Basic ")
        assert (await app.client.get("/session", headers=basic("opencode:pässword:with colon"))).status_code == 200


WRONG_LOGINS: list[dict[str, str]] = [
    {},
    *map(basic, ("opencode:wrong", "other:right", "opencode:", "opencode:righ", ":right", "right")),
    *({"authorization": value} for value in ("Bearer right", "Basic right", "Basic", "Basic ÿ", "")),
]


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the throttle of wrong logins."""
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    monkeypatch.setattr(login, "LIMIT", "10000/minute")


async def test_wrong_logins(tmp_path: Path, password: None) -> None:
    async with running_app(tmp_path) as app:
        for headers in WRONG_LOGINS:
            sent = {name: value.encode("latin-1") for name, value in headers.items()}
            for path in ("/session", "/event", "/global/event", "/doc", "/s", "/global/health/", "/global/healthy"):
                assert (await app.client.get(path, headers=sent)).status_code == 401, (headers, path)  # type: ignore[arg-type]


async def test_with_the_login_all_works_and_streams_too(tmp_path: Path, password: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_USERNAME", "me")
    async with running_app(tmp_path, auth=("me", "right")) as app, app.events() as events:
        session = await app.create_session()
        await app.prompt(session["id"], "hi")
        await events.until("session.idle")


async def test_open_routes_are_open_for_reading_alone_and_no_way_leads_out_of_them(tmp_path: Path, password: None) -> None:
    outside = ("/s/../session", "/s/%2e%2e/session", "/s/..%2fsession", "/s//session", "//s/x/session", "/s/x/../../session")
    async with running_app(tmp_path) as app:
        for path in outside:
            assert (await app.client.get(f"http://127.0.0.1:4096{path}")).status_code in (401, 404), path
        for path in ("/global/health", "/s/x/session", "/s/x"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert (await app.client.request(method, path)).status_code == 401, (method, path)


# Listening.


def test_beyond_loopback_it_does_not_listen_without_a_password(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENSESSION_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "app.cli", "serve", "--hostname", "0.0.0.0", "--port", "0"]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "OPENCODE_SERVER_PASSWORD" in result.stderr and not (tmp_path / "data").exists()


def test_loopback() -> None:
    hosts = ("127.0.0.1", "127.1.2.3", "::1", "localhost", "0.0.0.0", "::", "192.168.1.7", "example.com", "")
    assert [host for host in hosts if is_loopback(host)] == ["127.0.0.1", "127.1.2.3", "::1", "localhost"]
