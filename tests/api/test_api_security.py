"""Who may talk to the server, on every route: Host, Origin, content type, password."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from every_route import WRITING, every_route, unknown
from running_app import RunningApp, running_app

from app.api.security import is_loopback
from app.main import create_app
from app.settings import Settings

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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:4096", "localhost:1", "LOCALHOST", "[::1]:4096", "reach.example:443"])
async def test_hosts_that_name_this_server(tmp_path: Path, host: str) -> None:
    async with running_app(tmp_path, public_url="https://reach.example/base") as app:
        assert (await app.client.get("/global/health", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.7",
        "[",
        "[::2]",
        "0.0.0.0",
        "127.0.0.2",
        "x\x7f",
    ],
)
async def test_hosts_that_do_not(app: RunningApp, host: str) -> None:
    response = await app.client.get("/global/health", headers={"host": host})
    assert response.status_code == 403 and response.json()["name"] == "HostForbiddenError"


async def test_a_server_for_all_addresses_is_reached_by_any_address_and_by_no_other_name(tmp_path: Path) -> None:
    async with running_app(tmp_path, hostname="0.0.0.0") as app:
        for host, status in (("192.168.1.7:4096", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            assert (await app.client.get("/global/health", headers={"host": host})).status_code == status


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


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_what_the_page_and_its_user_ask_for_is_served(app: RunningApp, site: str) -> None:
    assert (await app.client.get("/session", headers={"sec-fetch-site": site})).status_code == 200


async def test_a_listed_page_reads_across_sites(tmp_path: Path) -> None:
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        answer = await app.client.get("/session", headers={"sec-fetch-site": "cross-site", "origin": LISTED})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "origin",
    [FOREIGN, LISTED + ".evil.example", "http://app.example.com", LISTED + ":8443", LISTED + "/", "null", "", "x", "http://[bad"],
)
async def test_origins_are_matched_exactly(tmp_path: Path, origin: str) -> None:
    async with running_app(tmp_path, cors_origins=f"{LISTED}, https://second.example") as app:
        response = await app.client.post("/session", json={}, headers={"origin": origin})
        assert response.status_code == 403 and "access-control-allow-origin" not in response.headers


LOOPBACK = ["http://localhost:3000", "http://localhost", "https://localhost:8443", "http://127.0.0.1:5173", "http://[::1]:3000"]


@pytest.mark.parametrize("origin", [*LOOPBACK, LISTED])
async def test_pages_of_this_machine_may_write_where_loopback_is_listed(tmp_path: Path, origin: str) -> None:
    async with running_app(tmp_path, cors_origins=f"loopback, {LISTED}") as app:
        response = await app.client.post("/session", json={}, headers={"origin": origin})
        assert response.status_code == 200 and response.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
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
        "null",
        FOREIGN,
    ],
)
async def test_other_pages_may_not_where_loopback_is_listed(tmp_path: Path, origin: str) -> None:
    async with running_app(tmp_path, cors_origins="loopback") as app:
        response = await app.client.post("/session", json={}, headers={"origin": origin})
        assert response.status_code == 403 and "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origin", LOOPBACK)
async def test_pages_of_this_machine_may_not_write_by_default(app: RunningApp, origin: str) -> None:
    response = await app.client.post("/session", json={}, headers={"origin": origin})
    message = response.json()["data"]["message"]
    assert response.status_code == 403 and "access-control-allow-origin" not in response.headers
    assert f"`{origin}`" in message and "OPENSESSION_CORS_ORIGINS" in message and "`loopback`" in message


async def test_the_refusal_names_the_origin_and_the_setting(app: RunningApp) -> None:
    response = await app.client.post("/session", json={}, headers={"origin": FOREIGN})
    message = response.json()["data"]["message"]
    assert f"`{FOREIGN}`" in message and "OPENSESSION_CORS_ORIGINS" in message and "loopback" not in message


@pytest.mark.parametrize("origin", [LISTED, "https://second.example", OURS])
async def test_listed_origins_and_the_servers_own_may_write(tmp_path: Path, origin: str) -> None:
    async with running_app(tmp_path, cors_origins=f"{LISTED}, https://second.example") as app:
        response = await app.client.post("/session", json={}, headers={"origin": origin})
        assert response.status_code == 200
        assert origin == OURS or response.headers["access-control-allow-origin"] == origin, "a page needs no leave for its own"
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers
        assert "X-Next-Cursor" in response.headers["access-control-expose-headers"]


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


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("opencode:wrong"),
        basic("other:right"),
        basic("opencode:"),
        basic("opencode:righ"),
        basic(":right"),
        basic("right"),
        {"authorization": "Bearer right"},
        {"authorization": "Basic right"},
        {"authorization": "Basic"},
        {"authorization": "Basic ÿ"},
        {"authorization": ""},
    ],
)
async def test_wrong_logins(tmp_path: Path, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        sent = {name: value.encode("latin-1") for name, value in headers.items()}
        for path in ("/session", "/event", "/global/event", "/doc", "/s", "/global/health/", "/global/healthy"):
            assert (await app.client.get(path, headers=sent)).status_code == 401  # type: ignore[arg-type]


async def test_with_the_login_all_works_and_streams_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    monkeypatch.setenv("OPENCODE_SERVER_USERNAME", "me")
    async with running_app(tmp_path, auth=("me", "right")) as app, app.events() as events:
        session = await app.create_session()
        await app.prompt(session["id"], "hi")
        await events.until("session.idle")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_open_routes_are_open_for_reading_alone(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        for path in ("/global/health", "/s/x/session", "/s/x"):
            assert (await app.client.request(method, path)).status_code == 401


async def test_no_way_leads_out_of_the_open_routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        for path in (
            "/s/../session",
            "/s/%2e%2e/session",
            "/s/..%2fsession",
            "/s//session",
            "//s/x/session",
            "/s/x/../../session",
        ):
            assert (await app.client.get(f"http://127.0.0.1:4096{path}")).status_code in (401, 404), path


# Listening.


def serve(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENSESSION_DATA_DIR": str(tmp_path / "data"), **environment}
    command = [sys.executable, "-m", "app.cli", "serve", *arguments]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)


def test_beyond_loopback_it_does_not_listen_without_a_password(tmp_path: Path) -> None:
    result = serve(tmp_path, "--hostname", "0.0.0.0", "--port", "0")
    assert result.returncode == 1
    assert "OPENCODE_SERVER_PASSWORD" in result.stderr and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("hostname", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.7", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback(hostname: str, loopback: bool) -> None:
    assert is_loopback(hostname) is loopback
