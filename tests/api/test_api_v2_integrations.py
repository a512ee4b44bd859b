"""The second API: what providers are connected by, and their keys, which the first API's routes store and remove."""

from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, running_app
from user_logins import user

KEY = "sk-marked-secret-0123456789"
CONNECT = "/api/integration/anthropic/connect"


async def anthropic(app: RunningApp) -> dict[str, Any]:
    answer: dict[str, Any] = (await app.get("/api/integration/anthropic"))["data"]
    assert answer in (await app.get("/api/integration"))["data"]
    return answer


async def test_a_provider_is_connected_by_a_key_or_a_variable(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [{"type": "key", "label": "API key"}, {"type": "env", "names": ["ANTHROPIC_API_KEY"]}]
    assert await anthropic(app) == {"id": "anthropic", "name": "Anthropic", "methods": methods, "connections": []}
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert (await anthropic(app))["connections"] == [{"type": "env", "name": "ANTHROPIC_API_KEY"}]


async def test_a_key_is_stored_renamed_and_removed_and_one_of_the_first_api_shown(app: RunningApp) -> None:
    await app.post(f"{CONNECT}/key", {"key": KEY, "label": "mine"}, expect=204)
    assert (await anthropic(app))["connections"] == [{"type": "credential", "id": "anthropic", "label": "mine"}]
    assert "anthropic" in [provider["id"] for provider in (await app.get("/api/provider"))["data"]]
    assert app.services.auth.get("anthropic").key == KEY  # type: ignore[union-attr]
    await app.call("PATCH", "/api/credential/anthropic", {"label": "yours"}, expect=204)
    assert (await anthropic(app))["connections"][0]["label"] == "yours"
    assert app.services.auth.get("anthropic").key == KEY  # type: ignore[union-attr]
    await app.call("DELETE", "/api/credential/anthropic", expect=204)
    assert (await anthropic(app))["connections"] == []
    await app.call("PUT", "/auth/anthropic", {"type": "api", "key": KEY})
    assert (await anthropic(app))["connections"] == [{"type": "credential", "id": "anthropic", "label": "API key"}]
    assert KEY not in (await app.client.get("/api/integration")).text


async def test_a_members_key_is_theirs(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "ben") as ben:
        await anna.post(f"{CONNECT}/key", {"key": KEY}, expect=204)
        assert len((await anthropic(anna))["connections"]) == 1
        assert (await anthropic(ben))["connections"] == []
        await ben.call("DELETE", "/api/credential/anthropic", expect=204)
        assert len((await anthropic(anna))["connections"]) == 1
        assert app.services.auth.all() == {}


async def test_what_is_not_there(app: RunningApp) -> None:
    assert (await app.get("/api/integration/none"))["data"] is None
    await app.call("DELETE", "/api/credential/none", expect=204)
    await app.call("PATCH", "/api/credential/none", {"label": "x"}, expect=204)
    await app.call("DELETE", "/api/integration/attempt/none", expect=204)
    assert app.services.auth.all() == {}
