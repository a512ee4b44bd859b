"""Users' own keys of providers, and what they may use a day."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alive import alive
from running_app import RunningApp, running_app
from turns import requests, texts, until
from typer.testing import CliRunner
from user_logins import user

from app.cli import app as command
from app.providers.registry import Providers
from app.record.repositories import account_rows

KEY = {"type": "api", "key": "sk-of-anna-alone"}
USED = [{"text": "ok"}, {"usage": {"input": 900, "output": 100}}]


async def connected(app: RunningApp) -> list[str]:
    return sorted((await app.get("/provider"))["connected"])


async def stored_bodies(app: RunningApp) -> list[str]:
    rows = await app.services.store.query(account_rows.user_keys)
    return [row.body for row in rows]


@pytest.fixture
def server_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")


async def test_a_key_is_its_users_alone_and_encrypted(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "bert") as bert:
        await anna.call("PUT", "/auth/anthropic", KEY)
        assert await connected(anna) == ["anthropic"] and await connected(bert) == ["scripted"]
        [body] = await stored_bodies(app)
        assert KEY["key"] not in body and not (app.data_dir / "auth.json").exists()
        await anna.call("DELETE", "/auth/anthropic")
        assert await connected(anna) == ["scripted"] and await stored_bodies(app) == []
        entry = {"type": "wellknown", "key": "TOKEN", "token": "secret-token"}
        await anna.call("PUT", "/auth/https://example.com", entry, expect=403)  # an organisation would be everybody's


async def test_the_servers_key_is_for_admins_unless_it_is_shared(tmp_path: Path, server_key: None) -> None:
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "root", "admin") as root:
        assert await connected(anna) == ["scripted"] and await connected(root) == ["openai"]
        await anna.call("PATCH", "/config", {"provider": {}}, expect=403)
    async with running_app(tmp_path / "shared", shared_keys=True) as app, user(app, "anna") as anna:
        assert await connected(anna) == ["openai"]
    async with running_app(tmp_path / "kept", shared_keys=False) as app, user(app, "root", "admin") as root:
        assert await connected(root) == ["scripted"]


async def test_a_key_of_the_configuration_is_the_servers_too(tmp_path: Path) -> None:
    provider = {"npm": "@ai-sdk/openai-compatible", "models": {"m": {}}, "options": {"baseURL": "http://127.0.0.1:1/v1"}}
    keyed: dict[str, Any] = {**provider, "options": {**provider["options"], "apiKey": "sk-of-the-server"}}  # type: ignore[dict-item]
    async with running_app(tmp_path) as app, user(app, "anna") as anna, user(app, "root", "admin") as root:
        headed = {**provider, "options": {"baseURL": "http://127.0.0.1:1/v1", "headers": {"X-Odd": "of the server"}}}
        await root.call("PATCH", "/config", {"provider": {"open": provider, "keyed": keyed, "headed": headed}})
        assert await connected(root) == ["headed", "keyed", "open"] and await connected(anna) == ["open"]
        await anna.call("PUT", "/auth/keyed", KEY)
        assert await connected(anna) == ["keyed", "open"]
        instance = await app.services.instances.get(None, "anna")
        assert instance.models.connected["keyed"].key == KEY["key"]
        assert "apiKey" not in instance.models.connected["keyed"].options


async def test_who_has_used_up_a_days_budget_gets_no_more_answers(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[USED, USED]) as app:
        async with user(app, "anna", max_tokens=1000) as anna, user(app, "bert") as bert:
            mine, other = await anna.create_session(title="t"), await bert.create_session(title="t")
            assert "error" not in (await anna.prompt(mine["id"], "one"))["info"]
            refused = (await anna.prompt(mine["id"], "two"))["info"]["error"]
            assert refused["name"] == "APIError" and refused["data"]["statusCode"] == 402
            assert "1000 of 1000 tokens" in refused["data"]["message"] and not refused["data"]["isRetryable"]
            assert await anna.get("/session/status") == {}
            assert "error" not in (await bert.prompt(other["id"], "one"))["info"]


async def test_a_secret_is_rotated_while_a_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    async with running_app(tmp_path) as app, user(app, "anna") as anna:
        await anna.call("PUT", "/auth/anthropic", KEY)
        before, secret = await stored_bodies(app), (app.data_dir / "secret.json").read_text()
        assert (app.data_dir / "secret.json").stat().st_mode & 0o777 == 0o600
        rotated = await asyncio.to_thread(CliRunner().invoke, command, ["secret", "rotate"])
        assert rotated.exit_code == 0 and rotated.output.startswith("1 keys"), rotated.output
        assert await stored_bodies(app) != before and (app.data_dir / "secret.json").read_text() != secret
        assert await connected(anna) == ["anthropic"]


async def test_models_of_keys_that_a_user_has_replaced_are_closed(tmp_path: Path) -> None:
    """Also when a turn runs meanwhile: at its end."""
    async with (
        running_app(tmp_path, turns=[[{"text": "One."}, {"wait": (gate := asyncio.Event())}]]) as app,
        user(app, "anna") as anna,
    ):
        session = await anna.create_session()
        answering = asyncio.create_task(anna.prompt(session["id"], "one"))
        await until(lambda: requests(app))
        counts = []
        for number in range(8):
            await anna.call("PUT", "/auth/anthropic", {**KEY, "key": f"sk-{number}"})
            assert await connected(anna) == ["anthropic"]
            counts.append(alive(Providers))
        gate.set()
        assert texts(await answering) == ["One."]
        await until(lambda: alive(Providers) <= counts[0], "the models of replaced keys are closed")
        for number in range(8):
            await anna.call("PUT", "/auth/anthropic", {**KEY, "key": f"sk-later-{number}"})
            await connected(anna)
        await until(lambda: alive(Providers) <= counts[0], "the models of replaced keys are closed")
