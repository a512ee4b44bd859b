import json
from pathlib import Path
from typing import Any

import pytest

from app.project.config import jsonc
from app.project.config.errors import ConfigInvalidError, ConfigJsonError
from app.project.config.patch import masked_config, patch
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.util.secrets import MASK

SECRETS = {
    "provider": {
        "p": {
            "options": {"apiKey": "sk-1", "baseURL": "https://user:pw@host/v1", "sessionToken": "t", "maxTokens": 5},
            "models": {"m": {"headers": {"Authorization": "Bearer 1", "X-Key": "2", "X-Team": "blue"}}},
        }
    },
    "mcp": {
        "r": {
            "type": "remote",
            "url": "https://x/mcp",
            "headers": {"X-Any": "v"},
            "oauth": {"clientId": "id", "clientSecret": "cs"},
        },
        "l": {"type": "local", "command": ["x"], "environment": {"ANY": "v"}},
    },
    "agent": {"token-counter": {"description": "counts tokens", "permission": {"read": {"*secret*": "deny"}}, "api_key": "k"}},
    "command": {"rotate-secret": {"template": "rotate the token"}},
    "permission": {"read": {"*.secret": "deny"}},
}


def test_the_update_is_merged_and_the_rest_stays(world: Any) -> None:
    path = world.write(
        world.directory / "opencode.json",
        '{\n\t// mine\n\t"username": "{env:WHO}",\n\t"agent": {"a": {"prompt": "x"}},\n\t"theme": "light"\n}\n',
    )
    assert patch(world.directory, {"theme": "dark", "agent": {"a": {"model": "p/m"}}}) == path
    text = path.read_text()
    assert text.startswith('{\n\t// mine\n\t"username": "{env:WHO}",\n')
    assert jsonc.loads(text)["agent"] == {"a": {"prompt": "x", "model": "p/m"}}
    assert world.load({"WHO": "me"}).config.theme == "dark"


@pytest.mark.parametrize(
    ("there", "written"),
    [
        (["opencode.jsonc"], "opencode.jsonc"),
        (["opencode.jsonc", "opencode.json"], "opencode.json"),
        ([".opencode/opencode.json"], ".opencode/opencode.json"),
        ([".opencode/opencode.jsonc", "opencode.json"], ".opencode/opencode.jsonc"),
    ],
)
def test_the_file_that_decides_is_written(world: Any, there: list[str], written: str) -> None:
    for name in there:
        world.write(world.directory / name, '{"theme": "old", /* kept */ "username": "u"}')
    assert patch(world.directory, {"theme": "new"}) == world.directory / written
    assert (world.directory / written).read_text() == '{"theme": "new", /* kept */ "username": "u"}'
    assert world.load().config.theme == "new"


@pytest.mark.parametrize(
    ("update", "path"), [({"nope": 1}, []), ({"server": {"port": "x"}}, ["server", "port"]), ({"agent": []}, ["agent"])]
)
def test_an_invalid_update_is_refused_and_writes_nothing(world: Any, update: dict[str, Any], path: list[str]) -> None:
    with pytest.raises(BadRequest) as caught:
        patch(world.directory, update)
    assert caught.value.body()["errors"][0]["path"] == path
    assert list(world.directory.iterdir()) == []


def test_an_update_that_does_not_fit_the_file_is_refused(world: Any) -> None:
    path = world.write(world.directory / "opencode.json", {"mcp": {"a": {"type": "local", "command": ["x"]}}})
    before = path.read_text()
    with pytest.raises(BadRequest, match=r"mcp\.a"):
        patch(world.directory, {"mcp": {"a": {"type": "remote", "url": "http://x"}}})
    assert path.read_text() == before


def test_a_broken_file_is_named_and_left(world: Any) -> None:
    path = world.write(world.directory / "opencode.json", '{"theme": ')
    with pytest.raises(ConfigJsonError, match=str(path)):
        patch(world.directory, {"theme": "dark"})
    assert path.read_text() == '{"theme": '


def test_a_link_stays_a_link_and_rights_stay(world: Any) -> None:
    real = world.write(world.directory / "shared/dotfiles.json", '{"theme": "old"}')
    real.chmod(0o600)
    (world.directory / "opencode.json").symlink_to(real)
    patch(world.directory, {"theme": "new"})
    assert (world.directory / "opencode.json").is_symlink()
    assert json.loads(real.read_text()) == {"theme": "new"}
    assert real.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in real.parent.iterdir() if "dotfiles" in path.name] == ["dotfiles.json"]


def test_a_link_out_of_the_project_is_not_written_through(world: Any) -> None:
    real = world.write(world.home / "theirs.json", '{"theme": "old"}')
    (world.directory / "opencode.json").symlink_to(real)
    with pytest.raises(ConfigInvalidError):
        patch(world.directory, {"theme": "new"})
    assert real.read_text() == '{"theme": "old"}'
    real.unlink()
    with pytest.raises(ConfigInvalidError):
        patch(world.directory, {"theme": "new"})
    assert list(world.home.iterdir()) == []


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalidError, match="cannot be written"):
        patch(tmp_path / "gone", {"theme": "x"})


def test_secrets_are_masked_and_nothing_else() -> None:
    shown = masked_config(Config.model_validate(SECRETS))
    options = shown["provider"]["p"]["options"]
    assert options == {"apiKey": MASK, "baseURL": f"https://{MASK}@host/v1", "sessionToken": MASK, "maxTokens": 5}
    headers = shown["provider"]["p"]["models"]["m"]["headers"]
    assert headers == {"Authorization": MASK, "X-Key": MASK, "X-Team": MASK}
    assert shown["mcp"]["r"]["headers"] == {"X-Any": MASK}
    assert shown["mcp"]["r"]["oauth"] == {"clientId": "id", "clientSecret": MASK}
    assert shown["mcp"]["l"]["environment"] == {"ANY": MASK}
    assert shown["agent"]["token-counter"]["options"] == {"api_key": MASK}
    assert shown["agent"]["token-counter"]["permission"] == {"read": {"*secret*": "deny"}}
    assert shown["permission"] == SECRETS["permission"]
    assert shown["command"] == SECRETS["command"]


@pytest.mark.parametrize("name", ["tools", "prompt", "description", "permission", "template"])
def test_what_an_entry_is_called_hides_no_secret_of_it(name: str) -> None:
    provider = {"options": {"apiKey": "hush"}, "models": {name: {"headers": {"X": "hush"}}}}
    server = {"type": "remote", "url": "http://x", "headers": {"X": "hush"}, "oauth": {"clientSecret": "hush"}}
    agent = {"options": {"apiKey": "hush"}, "prompt": "Say the token."}
    shown = masked_config(Config.model_validate({"provider": {name: provider}, "mcp": {name: server}, "agent": {name: agent}}))
    assert "hush" not in json.dumps(shown) and shown["agent"][name]["prompt"] == "Say the token."
