"""Logging in over HTTP, what is noted of those who write, and the bounds that settings name."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from user_logins import bearer

from app.users.login import FAILURES
from app.users.tokens import TokenStore

PAGE = "https://app.example.com"
RIGHT, WRONG = {"auth": ("opencode", "right")}, {"auth": ("opencode", "no")}


def audited(app: RunningApp) -> list[dict[str, Any]]:
    path = app.data_dir / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_token_works_beside_the_password_and_what_is_refused_at_the_door_is_not_noted(
    password: None, app: RunningApp
) -> None:
    await app.post("/session", expect=401)
    await app.post("/session", headers={"host": "evil.example"}, expect=403)
    await app.post("/session", headers={"origin": "https://evil.example"}, expect=403, **RIGHT)
    assert audited(app) == []
    token = TokenStore(app.data_dir).create("laptop")
    await app.post("/session", headers=bearer(token))
    await app.post("/session", **RIGHT)
    await app.get("/session", headers=bearer(token + "x"), expect=401)
    assert TokenStore(app.data_dir).revoke("laptop")
    await app.get("/session", headers=bearer(token), expect=401)
    assert [line["who"] for line in audited(app)] == ["token laptop", "opencode"]


async def test_wrong_logins_are_throttled(password: None, app: RunningApp) -> None:
    statuses = [(await app.client.get("/session", **WRONG)).status_code for _ in range(FAILURES + 2)]
    assert statuses == [401] * (FAILURES - 1) + [429] * 3
    throttled = await app.client.get("/session", **RIGHT)
    assert throttled.status_code == 429 and throttled.json()["name"] == "TooManyLoginsError"
    assert 0 < int(throttled.headers["retry-after"]) <= 60
    await app.get("/global/health")


async def test_a_page_opens_its_stream_with_a_token_in_the_address(tmp_path: Path, password: None) -> None:
    async with running_app(tmp_path, cors_origins=PAGE) as app:
        wanted = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
        preflight = await app.client.options("/session", headers={"origin": PAGE, **wanted})
        assert preflight.status_code == 200 and preflight.headers["access-control-allow-headers"] == "authorization"
        token = (await app.post("/auth/event-token", **RIGHT))["token"]
        async with app.events(token=token) as events:
            await events.until("server.connected")
        await app.get("/event", params={"token": token}, expect=401)
        await app.post("/auth/event-token", expect=401)


async def test_what_is_noted_of_a_write(app: RunningApp) -> None:
    session = await app.create_session()
    await app.prompt(session["id"], "a secret text", noReply=True)
    await app.call("PATCH", f"/session/{session['id']}?directory={app.directory}", {"title": "another secret"})
    await app.call("DELETE", "/session/ses_unknown", expect=404)
    await app.call("PUT", "/auth/x", {"type": "api", "key": "sk-secret"})
    await app.get("/session")
    fork = await app.post(f"/session/{session['id']}/fork")
    lines, path = audited(app), app.data_dir / "audit.log"
    assert [(line["method"], line["route"], line["session"], line["status"], line["created"]) for line in lines] == [
        ("POST", "/session", None, 200, session["id"]),
        ("POST", "/session/{sessionID}/message", session["id"], 200, None),
        ("PATCH", "/session/{sessionID}", session["id"], 200, None),
        ("DELETE", "/session/{sessionID}", "ses_unknown", 404, None),
        ("PUT", "/auth/{providerID}", None, 200, None),
        ("POST", "/session/{sessionID}/fork", session["id"], 200, fork["id"]),
    ]
    assert all(line["who"] == "anyone" and line["from"] == "127.0.0.1" and line["ms"] >= 0 for line in lines)
    assert "secret" not in path.read_text() and stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_line_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_app(tmp_path) as app:
        (app.data_dir / "audit.log").mkdir()
        await app.create_session()
    assert "audit log could not be written" in caplog.text and "Traceback" not in caplog.text


async def test_streams_and_bodies_are_limited_by_settings(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_event_streams=2, max_body_bytes=1000) as app:
        async with app.events(), app.events("/global/event"):
            refused = await app.client.get("/event")
            assert refused.status_code == 429 and refused.json()["name"] == "TooManyStreamsError"
            assert refused.headers["retry-after"]
        async with app.events() as again:
            await again.until("server.connected")
        await app.create_session(title="x" * 900)
        large = await app.post("/session", {"title": "x" * 1000}, expect=413)
        assert large["name"] == "PayloadTooLargeError" and "OPENSESSION_MAX_BODY_BYTES" in large["data"]["message"]
