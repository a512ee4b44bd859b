"""Who may talk to the server, on every route: Host, Origin, content type, password."""

import base64
import json
from pathlib import Path

import httpx2
import pytest
from every_route import WRITING, every_route, unknown
from running_app import RunningApp, running_app
from shell_commands import Shell

from app.api.security import is_loopback
from app.users import login

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]
OURS = "http://127.0.0.1:4096"
LISTED = "https://app.example.com"
FOREIGN = "https://evil.example"
JSON = {"content-type": "application/json"}
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json")
"""What a page may send without asking."""

Route = tuple[str, str]


@pytest.fixture
def routes(shared: RunningApp) -> list[Route]:
    """With something in the place of each parameter that no route finds."""
    return [(method, unknown(path)) for method, path in every_route(shared.fastapi)]


@pytest.fixture
def writing(routes: list[Route]) -> list[Route]:
    return [route for route in routes if route[0] in WRITING]


async def statuses(app: RunningApp, routes: list[Route], headers: dict[str, str]) -> dict[Route, tuple[int, str]]:
    """(status, error name) of each route, in the second API its tag; a stream is left as soon as it answers. What is refused
    lets no page of another origin read."""
    answered = {}
    for method, path in routes:
        async with app.client.stream(method, path, headers=headers, content=b"{" if method in WRITING else None) as response:
            refused = response.status_code in (401, 403, 413, 415)
            error = json.loads(await response.aread()) if refused else {}
            answered[method, path] = (response.status_code, error.get("_tag" if path.startswith("/api/") else "name", ""))
            assert not [name for name in response.headers if name.startswith("access-control-")], (method, path)
    return answered


# Host.


async def test_every_route_refuses_a_host_that_is_not_this_servers(shared: RunningApp, routes: list[Route]) -> None:
    answered = await statuses(shared, routes, {"host": "evil.example:4096", **JSON})
    assert set(answered.values()) == {(403, "HostForbiddenError")}


NAMES = ("127.0.0.1", "127.0.0.1:4096", "localhost:1", "LOCALHOST", "[::1]:4096", "reach.example:443")
OTHERS = ("", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.7")
OTHERS += ("[", "[::2]", "0.0.0.0", "127.0.0.2", "x\x7f")


@pytest.mark.parametrize(
    ("settings", "ours", "others"),
    [
        ({"public_url": "https://reach.example/base"}, NAMES, OTHERS),
        ({"hostname": "0.0.0.0"}, ("192.168.1.7:4096", "[fe80::1]"), ("evil.example",)),
    ],
    ids=["on loopback", "on all addresses"],
)
async def test_hosts_that_name_this_server_and_others(
    tmp_path: Path, settings: dict[str, str], ours: tuple[str, ...], others: tuple[str, ...]
) -> None:
    async with running_app(tmp_path, **settings) as app:
        for host in ours:
            assert (await app.client.get("/global/health", headers={"host": host})).status_code == 200, host
        for host in others:
            response = await app.client.get("/global/health", headers={"host": host})
            assert response.status_code == 403 and response.json()["name"] == "HostForbiddenError", host


# Origin.


async def test_no_route_lets_a_foreign_page_write_or_read(shared: RunningApp, routes: list[Route], writing: list[Route]) -> None:
    for content_type in ("application/json", "text/plain"):
        answered = await statuses(shared, writing, {"origin": FOREIGN, "content-type": content_type})
        assert set(answered.values()) == {(403, "OriginForbiddenError")}
    await statuses(shared, routes, {"origin": FOREIGN, **JSON})
    assert await shared.get("/session") == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
async def test_no_route_is_asked_by_what_a_foreign_page_embeds_or_leads_to(
    shared: RunningApp, routes: list[Route], site: str, mode: str
) -> None:
    """Such a request has no Origin. It would open a directory, and start its MCP servers."""
    reading = [route for route in routes if route[0] == "GET"]
    answered = await statuses(shared, reading, {"sec-fetch-site": site, "sec-fetch-mode": mode, **JSON})
    served = [path for (_, path), answer in answered.items() if answer != (403, "OriginForbiddenError")]
    opened = {path for path in served if not path.startswith(("/s/", "/page/"))}
    assert opened <= {"/", "/doc", "/global/health", "/mcp/oauth/callback"}


async def write_from(app: RunningApp, origin: str) -> httpx2.Response:
    return await app.client.post("/session", json={}, headers={"origin": origin})


LOOPBACK = ["http://localhost:3000", "http://localhost", "https://localhost:8443", "http://127.0.0.1:5173", "http://[::1]:3000"]
NEAR_LISTED = [LISTED + ".evil.example", "http://app.example.com", LISTED + ":8443", LISTED + "/"]
_NEAR_LOOPBACK = """
http://localhost.evil.example http://localhost:3000.evil.example http://evil.example:localhost http://sub.localhost:3000
http://localhost@evil.example http://evil.example@localhost http://localhost:3000/ http://127.0.0.1.evil.example
http://127.0.0.2:3000 http://[::2] file://localhost localhost:3000 loopback
"""
NEAR_LOOPBACK = [*_NEAR_LOOPBACK.split(), "http://localhost:3000\n"]
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
        for origin in (FOREIGN, *LOOPBACK) if not listed else ():
            message = (await write_from(app, origin)).json()["data"]["message"]
            assert f"`{origin}`" in message and "OPENSESSION_CORS_ORIGINS" in message
            assert ("`loopback`" in message) == (origin in LOOPBACK)


async def test_a_listed_page_reads_errors_too_and_asks_first(tmp_path: Path, shared: RunningApp) -> None:
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-opencode-directory"}
    async with running_app(tmp_path, cors_origins=LISTED) as app:
        for site in ({"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}):
            assert (await app.client.get("/session", headers=site)).status_code == 200, site
        for path, status in (("/session", 200), ("/session/ses_nope", 404), ("/nowhere", 404)):
            response = await app.client.get(path, headers={"sec-fetch-site": "cross-site", "origin": LISTED})
            assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, LISTED)
        listed = await app.client.options("/session", headers={"origin": LISTED, **wanted})
        assert (listed.status_code, listed.headers["access-control-allow-origin"]) == (200, LISTED)
        assert listed.headers["access-control-allow-headers"] == wanted["access-control-request-headers"]
        assert {"POST", "DELETE"} <= set(listed.headers["access-control-allow-methods"].split(", "))
        for server, status in ((app, 400), (shared, 403)):
            foreign = await server.client.options("/session", headers={"origin": FOREIGN, **wanted})
            assert foreign.status_code == status and "access-control-allow-origin" not in foreign.headers


# Content type.


async def test_no_route_takes_a_body_that_a_page_may_send_without_asking(shared: RunningApp, writing: list[Route]) -> None:
    for content_type in FORMS:
        answered = await statuses(shared, writing, {"content-type": content_type})
        assert set(answered.values()) == {(415, "UnsupportedMediaTypeError")}


# Password.


def basic(login: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(login.encode()).decode()}


async def test_every_route_wants_the_password(tmp_path: Path, routes: list[Route], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "pässword:with colon")
    async with running_app(tmp_path) as app:
        answered = await statuses(app, [*routes, ("OPTIONS", "/session"), ("GET", "/nowhere")], JSON)
        without = {route for route, status in answered.items() if status != (401, "UnauthorizedError")}
        opened = {path for _, path in routes if path.startswith(("/s/", "/page/"))}
        assert without == {("GET", path) for path in (*opened, "/global/health", "/")}
        for path in ("/session", "/api/location"):
            assert (await app.client.get(path)).headers["www-authenticate"].startswith("Basic ")
            assert (await app.client.get(path, headers=basic("opencode:pässword:with colon"))).status_code == 200


WRONG_LOGINS: list[dict[str, str]] = [
    {},
    *map(basic, ("me:wrong", "other:right", "me:", "me:righ", ":right", "right", "opencode:right")),
    *({"authorization": value} for value in ("Bearer right", "Basic right", "Basic", "Basic ÿ", "")),
    *({"authorization": value} for value in ("Basic ====", "basic " + "A" * 10_000, "Digest x", "Bearer ÿ", "Bearer")),
]
OUTSIDE = ("/s/../session", "/s/%2e%2e/session", "/s/..%2fsession", "/s//session", "//s/x/session", "/s/x/../../session")


async def test_without_the_right_login_nothing_works_and_no_way_leads_out_of_open_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    monkeypatch.setenv("OPENCODE_SERVER_USERNAME", "me")
    monkeypatch.setattr(login, "LIMIT", "10000/minute")
    async with running_app(tmp_path) as app:
        for headers in WRONG_LOGINS:
            sent = {name: value.encode("latin-1") for name, value in headers.items()}
            for path in ("/session", "/event", "/global/event", "/doc", "/s", "/global/health/", "/global/healthy"):
                assert (await app.client.get(path, headers=sent)).status_code == 401, (headers, path)
        for path in OUTSIDE:
            assert (await app.client.get(f"{OURS}{path}")).status_code in (401, 404), path
        for path in ("/global/health", "/s/x/session", "/s/x"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert (await app.client.request(method, path)).status_code == 401, (method, path)
        app.client.auth = ("me", "right")
        async with app.events() as events:
            await app.prompt((await app.create_session())["id"], "hi")
            await events.until("session.idle")


# Listening.


async def test_beyond_loopback_it_does_not_listen_without_a_password(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path, tmp_path / "data")
    result = shell.done("serve", "--hostname", "0.0.0.0", "--port", "0", code=1)
    assert "OPENCODE_SERVER_PASSWORD" in result.stderr and not (tmp_path / "data").exists()
    hosts = ("127.0.0.1", "127.1.2.3", "::1", "localhost", "0.0.0.0", "::", "192.168.1.7", "example.com", "")
    assert [host for host in hosts if is_loopback(host)] == ["127.0.0.1", "127.1.2.3", "::1", "localhost"]
