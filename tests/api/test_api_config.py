"""Configuration, providers and keys over HTTP: secrets go in and never come out. An organisation that the user has signed in to
gives every directory the lowest layer of its configuration."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from loopback import QuietHandler, on_loopback
from running_app import RunningApp, running_app
from turns import configured

from app.util.environment import opencode_config_dir

SECRET = "sk-very-secret-value"
PROVIDER: dict[str, Any] = {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": f"http://user:{SECRET}@127.0.0.1:9/v1", "apiKey": SECRET, "headers": {"Authorization": SECRET}},
    "models": {"small": {"name": "Small", "headers": {"x-api-key": SECRET}, "options": {"apiKey": SECRET, "effort": "low"}}},
}
MINE = {"provider": {"mine": PROVIDER}}
REMOTE = {"type": "remote", "url": "https://x", "headers": {"X": SECRET}}


async def test_no_route_shows_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    agents = {"own": {"steps": 10**30}}  # no number of 64 bits, which is shown too
    workspace = configured(tmp_path, {**MINE, "model": "mine/small", "mcp": {"tools": REMOTE}, "agent": agents})
    async with running_app(tmp_path, workspace=workspace) as app:
        await app.call("PUT", "/auth/openai", {"type": "api", "key": SECRET})
        for path in ("/config", "/config/providers", "/provider"):
            text = (await app.client.get(path)).text
            assert "mine" in text and SECRET not in text, path
        config = await app.get("/config")
    assert (config["model"], config["provider"]["mine"]["npm"]) == ("mine/small", PROVIDER["npm"])
    assert config["agent"]["own"]["steps"] == 10**30
    assert config["provider"]["mine"]["models"]["small"]["options"]["effort"] == "low"


async def test_a_changed_configuration_holds_at_once_and_may_be_sent_back_as_it_is_shown(app: RunningApp) -> None:
    changed = await app.call("PATCH", "/config", {"username": "me", **MINE})
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


async def test_a_stored_key_connects_its_provider_in_a_file_of_its_owners_alone(app: RunningApp) -> None:
    found, listed = await app.get("/config/providers"), await app.get("/provider")
    assert ([provider["id"] for provider in found["providers"]], found["default"]) == (["scripted"], {"scripted": "rules"})
    assert listed["connected"] == ["scripted"] and {"anthropic", "openai"} <= {provider["id"] for provider in listed["all"]}
    methods = await app.get("/provider/auth")
    assert {method["type"] for of_one in methods.values() for method in of_one} <= {"api", "oauth"}
    for number in range(2):
        assert await app.call("PUT", "/auth/anthropic", {"type": "api", "key": f"{SECRET}{number}"}) is True
        [path] = app.data_dir.glob("auth.json*")
        assert [stat.S_IMODE(file.stat().st_mode) for file in (path, app.data_dir / "auth.lock")] == [0o600] * 2
    assert "anthropic" in (await app.get("/provider"))["connected"]
    await app.call("PUT", "/auth/anthropic", {"type": "api", "key": f" {SECRET}\n"})
    assert json.loads(path.read_text())["anthropic"]["key"] == SECRET
    for none in ("", " \n"):
        await app.call("PUT", "/auth/anthropic", {"type": "api", "key": none}, expect=400)
    assert json.loads(path.read_text())["anthropic"]["key"] == SECRET, "an empty one is refused"
    for _ in range(2):
        assert await app.call("DELETE", "/auth/anthropic") is True
        assert "anthropic" not in (await app.get("/provider"))["connected"]


# The user's own configuration.


def global_file(name: str = "opencode.json") -> Path:
    path = opencode_config_dir() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def test_the_global_configuration_is_the_users_own_files_merged_and_masked(app: RunningApp) -> None:
    assert await app.get("/global/config") == {}
    global_file("config.json").write_text('{"username": "low", "theme": "t"}')
    global_file().write_text(json.dumps({**MINE, "username": "middle"}))
    global_file("opencode.jsonc").write_text('{"username": "high" /* wins */}')
    (app.directory / "opencode.json").write_text('{"model": "scripted/rules"}')
    shown = await app.get("/global/config")
    assert shown.keys() == {"username", "theme", "provider"} and shown["username"] == "high"
    assert SECRET not in json.dumps(shown)


async def test_a_change_of_it_keeps_what_is_there_and_holds_in_every_directory(app: RunningApp) -> None:
    path = global_file("opencode.jsonc")
    path.write_text('{\n  // mine\n  "username": "me", // why\n  "theme": "{env:HOME}"\n}\n')
    path.chmod(0o600)
    assert (await app.get("/config"))["username"] == "me"
    changed = await app.call("PATCH", "/global/config", {"username": "you", **MINE})
    assert changed["username"] == "you" and SECRET not in json.dumps(changed)
    text = path.read_text()
    assert "// mine" in text and "// why" in text and '"{env:HOME}"' in text and SECRET in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (await app.get("/config"))["username"] == "you"
    assert not (app.directory / "opencode.json").exists()


async def test_its_first_change_makes_the_file_and_what_was_shown_masked_may_be_sent_back(app: RunningApp) -> None:
    await app.call("PATCH", "/global/config", MINE)
    await app.call("PATCH", "/global/config", {**await app.get("/global/config"), "username": "me"})
    kept = global_file().read_text()
    assert SECRET in kept and "***" not in kept and '"me"' in kept


# An organisation's configuration.


class Organisation:
    """Its web server: `config` is what it answers, None for a failure; `asked` counts the requests."""

    config: dict[str, Any] | None = {}
    asked = 0
    url = ""
    entry = {"type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken"}


@pytest.fixture
def organisation() -> Iterator[Organisation]:
    found = Organisation()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            found.asked += 1
            if found.config is None or self.path != "/.well-known/opencode":
                self.reply(b"later", status=503)
            else:
                self.reply(json.dumps({"auth": {"env": "ORG_TOKEN"}, "config": found.config}).encode())

    with on_loopback(Handler) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


async def test_an_organisations_is_the_lowest_layer_and_its_token_an_environment_variable(
    app: RunningApp, organisation: Organisation
) -> None:
    wiki = {"type": "remote", "url": "http://127.0.0.1:9", "headers": {"Authorization": "Bearer {env:ORG_TOKEN}"}}
    provider = {"npm": "@ai-sdk/openai-compatible", "env": ["ORG_TOKEN"], "options": {"baseURL": "http://127.0.0.1:9/v1"}}
    organisation.config = {
        "username": "theirs",
        "theme": "theirs",
        "mcp": {"wiki": {**wiki, "enabled": False}},
        "provider": {"org": {**provider, "models": {"m": {}}}},
    }
    (app.directory / "opencode.json").write_text('{"theme": "mine", "instructions": ["{env:ORG_TOKEN}.md"]}')
    address = f"/auth/{quote(organisation.url, safe='')}"
    assert await app.call("PUT", address, organisation.entry) is True
    config = await app.get("/config")
    assert (config["theme"], config["username"], config["instructions"]) == ("mine", "theirs", ["t0ken.md"])
    loaded = (await app.services.instances.get()).config
    assert loaded.mcp["wiki"].headers == {"Authorization": "Bearer t0ken"}
    assert "t0ken" not in json.dumps(config["mcp"])
    assert "org" in (await app.get("/provider"))["connected"]
    assert organisation.asked == 1
    assert await app.call("DELETE", address) is True
    assert "theirs" not in str(await app.get("/config"))


async def test_one_that_cannot_be_reached_is_reported_by_its_address_and_asked_again_later(
    app: RunningApp, organisation: Organisation
) -> None:
    organisation.config = None
    (app.data_dir / "auth.json").write_text(json.dumps({organisation.url: organisation.entry}))
    for _ in range(2):
        error = await app.get("/config", expect=500)
        assert error["name"] == "ConfigInvalidError" and organisation.url in error["data"]["path"]
    assert organisation.asked == 1, "not with every request"
    (app.data_dir / "auth.json").unlink()
    await app.get("/config")
