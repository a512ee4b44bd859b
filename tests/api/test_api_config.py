"""Configuration, providers and keys over HTTP: secrets go in and never come out."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, make_workspace, running_app
from user_logins import user

from app.util.environment import opencode_config_dir

SECRET = "sk-very-secret-value"
PROVIDER: dict[str, Any] = {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": f"http://user:{SECRET}@127.0.0.1:9/v1", "apiKey": SECRET, "headers": {"Authorization": SECRET}},
    "models": {"small": {"name": "Small", "headers": {"x-api-key": SECRET}, "options": {"apiKey": SECRET, "effort": "low"}}},
}
CONFIG: dict[str, Any] = {
    "provider": {"mine": PROVIDER},
    "model": "mine/small",
    "mcp": {"tools": {"type": "remote", "url": "https://x", "headers": {"X": SECRET}}},
}


def configured(tmp_path: Path, config: dict[str, Any] = CONFIG) -> Path:
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "opencode.json").write_text(json.dumps(config))
    return workspace


async def test_the_configuration_is_shown_without_its_secrets(tmp_path: Path) -> None:
    async with running_app(tmp_path, workspace=configured(tmp_path)) as app:
        config = await app.get("/config")
    assert config["model"] == "mine/small"
    assert config["provider"]["mine"]["npm"] == "@ai-sdk/openai-compatible"
    assert config["provider"]["mine"]["models"]["small"]["options"]["effort"] == "low"
    assert SECRET not in json.dumps(config)


async def test_no_route_shows_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    async with running_app(tmp_path, workspace=configured(tmp_path)) as app:
        await app.call("PUT", "/auth/openai", {"type": "api", "key": SECRET})
        for path in ("/config", "/config/providers", "/provider"):
            text = (await app.client.get(path)).text
            assert "mine" in text and SECRET not in text, path


async def test_a_changed_configuration_holds_at_once_and_may_be_sent_back_as_it_is_shown(app: RunningApp) -> None:
    changed = await app.call("PATCH", "/config", {"username": "me", "provider": {"mine": PROVIDER}})
    assert changed["username"] == "me" and SECRET not in json.dumps(changed)
    shown = await app.get("/config")
    assert shown["username"] == "me"
    assert "mine" in {provider["id"] for provider in (await app.get("/config/providers"))["providers"]}
    await app.call("PATCH", "/config", {**shown, "username": "you"})
    kept = "".join(path.read_text() for path in app.directory.rglob("*.json*") if ".git/" not in str(path))
    assert SECRET in kept and '"you"' in kept


async def test_a_broken_configuration_file_is_reported_by_name(app: RunningApp) -> None:
    for path, file in (("/config", app.directory / "opencode.json"), ("/global/config", global_file())):
        file.write_text('{"model": ')
        response = await app.client.get(path)
        assert 400 <= response.status_code <= 500 and "opencode.json" in json.dumps(response.json()["data"])


async def test_without_any_key_the_scripted_provider_is_offered(app: RunningApp) -> None:
    found = await app.get("/config/providers")
    assert [provider["id"] for provider in found["providers"]] == ["scripted"]
    assert found["default"] == {"scripted": "rules"}
    listed = await app.get("/provider")
    assert listed["connected"] == ["scripted"] and {"anthropic", "openai"} <= {provider["id"] for provider in listed["all"]}


async def test_a_stored_key_connects_its_provider_in_a_file_of_its_owners_alone(app: RunningApp) -> None:
    for number in range(2):
        assert await app.call("PUT", "/auth/anthropic", {"type": "api", "key": f"{SECRET}{number}"}) is True
        [path] = app.data_dir.glob("auth.json*")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "anthropic" in (await app.get("/provider"))["connected"]
    for _ in range(2):
        assert await app.call("DELETE", "/auth/anthropic") is True
        assert "anthropic" not in (await app.get("/provider"))["connected"]


async def test_providers_say_how_they_are_logged_in_to(app: RunningApp) -> None:
    methods = await app.get("/provider/auth")
    assert {method["type"] for of_one in methods.values() for method in of_one} <= {"api", "oauth"}


def global_file(name: str = "opencode.json") -> Path:
    path = opencode_config_dir() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class TestGlobalConfig:
    async def test_it_is_the_users_own_files_merged_and_masked(self, app: RunningApp) -> None:
        assert await app.get("/global/config") == {}
        global_file("config.json").write_text('{"username": "low", "theme": "t"}')
        global_file().write_text(json.dumps({"provider": {"mine": PROVIDER}, "username": "middle"}))
        global_file("opencode.jsonc").write_text('{"username": "high" /* wins */}')
        (app.directory / "opencode.json").write_text('{"model": "scripted/rules"}')
        shown = await app.get("/global/config")
        assert shown.keys() == {"username", "theme", "provider"} and shown["username"] == "high"
        assert SECRET not in json.dumps(shown)

    async def test_a_change_keeps_what_is_there_and_holds_in_every_directory(self, app: RunningApp) -> None:
        path = global_file("opencode.jsonc")
        path.write_text('{\n  // mine\n  "username": "me", // why\n  "theme": "{env:HOME}"\n}\n')
        path.chmod(0o600)
        assert (await app.get("/config"))["username"] == "me"
        changed = await app.call("PATCH", "/global/config", {"username": "you", "provider": {"mine": PROVIDER}})
        assert changed["username"] == "you" and SECRET not in json.dumps(changed)
        text = path.read_text()
        assert "// mine" in text and "// why" in text and '"{env:HOME}"' in text and SECRET in text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await app.get("/config"))["username"] == "you"
        assert not (app.directory / "opencode.json").exists()

    async def test_the_first_change_makes_the_file_and_what_was_shown_masked_may_be_sent_back(self, app: RunningApp) -> None:
        await app.call("PATCH", "/global/config", {"provider": {"mine": PROVIDER}})
        shown = await app.get("/global/config")
        await app.call("PATCH", "/global/config", {**shown, "username": "me"})
        kept = (opencode_config_dir() / "opencode.json").read_text()
        assert SECRET in kept and "***" not in kept and '"me"' in kept

    async def test_with_users_it_is_for_admins(self, app: RunningApp) -> None:
        async with user(app, "anna") as anna, user(app, "root", "admin") as admin, user(app, "vera", "viewer") as viewer:
            for login in (anna, viewer):
                await login.get("/global/config", expect=403)
                await login.call("PATCH", "/global/config", {"username": "x"}, expect=403)
            await admin.call("PATCH", "/global/config", {"username": "x"})
            assert await admin.get("/global/config") == {"username": "x"}
