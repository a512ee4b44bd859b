import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.project.config import jsonc
from app.project.config.errors import ConfigInvalidError, ConfigJsonError
from app.project.config.patch import masked_config, patch
from app.schema.config import Config
from app.schema.errors import BadRequest
from app.util.secrets import MASK


def test_the_update_is_merged_and_the_rest_stays(world: Any) -> None:
    kept = '{\n\t// mine\n\t"username": "{env:WHO}",\n'
    path = world.project(f'{kept}\t"agent": {{"a": {{"prompt": "x"}}}},\n\t"theme": "light"\n}}\n')
    assert patch(world.directory, {"theme": "dark", "agent": {"a": {"model": "p/m"}}}) == path
    text = path.read_text()
    assert text.startswith(kept)
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


REMOTE = {"type": "remote", "url": "http://x"}


@pytest.mark.parametrize(
    ("there", "update", "error", "named"),
    [
        (
            '{"mcp": {"a": {"type": "local", "command": ["x"]}}}',
            {"mcp": {"a": {"type": "remote", "url": "x"}}},
            BadRequest,
            "mcp.a",
        ),
        ('{"theme": ', {"theme": "dark"}, ConfigJsonError, "{path}"),
    ],
    ids=["an update that does not fit", "a broken file"],
)
def test_what_is_wrong_together_is_named_and_left(world: Any, there: str, update: Any, error: Any, named: str) -> None:
    path = world.project(there)
    with pytest.raises(error, match=re.escape(named.format(path=path))):
        patch(world.directory, update)
    assert path.read_text() == there


def test_a_link_stays_a_link_and_rights_stay(world: Any) -> None:
    real = world.write(world.directory / "shared/dotfiles.json", '{"theme": "old"}')
    real.chmod(0o600)
    (world.directory / "opencode.json").symlink_to(real)
    patch(world.directory, {"theme": "new"})
    assert (world.directory / "opencode.json").is_symlink()
    assert json.loads(real.read_text()) == {"theme": "new"}
    assert real.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in real.parent.iterdir() if "dotfiles" in path.name] == ["dotfiles.json"]


def test_a_link_out_of_the_project_is_not_written_through(world: Any, tmp_path: Path) -> None:
    real = world.write(world.home / "theirs.json", '{"theme": "old"}')
    (world.directory / "opencode.json").symlink_to(real)
    with pytest.raises(ConfigInvalidError):
        patch(world.directory, {"theme": "new"})
    assert real.read_text() == '{"theme": "old"}'
    real.unlink()
    with pytest.raises(ConfigInvalidError):
        patch(world.directory, {"theme": "new"})
    assert list(world.home.iterdir()) == []
    with pytest.raises(ConfigInvalidError, match="cannot be written"):
        patch(tmp_path / "gone", {"theme": "x"})


def test_secrets_are_masked_and_nothing_else() -> None:
    url, mcp = "https://{}@host/v1", {"url": "https://x/mcp", "type": "remote"}

    def config(key: str, token: str, login: str, own: str) -> dict[str, Any]:
        headers = {"Authorization": own, "X-Key": own, "X-Team": own}
        options = {"apiKey": key, "baseURL": url.format(login), "sessionToken": token, "maxTokens": 5}
        local = {"type": "local", "command": ["x"], "environment": {"ANY": own}}
        remote = {**mcp, "headers": {"X-Any": own}, "oauth": {"clientId": "id", "clientSecret": own}}
        counter = {"description": "counts tokens", "permission": {"read": {"*secret*": "deny"}}, "options": {"api_key": own}}
        return {
            "provider": {"p": {"options": options, "models": {"m": {"headers": headers}}}},
            "mcp": {"r": remote, "l": local},
            "agent": {"token-counter": counter},
            "command": {"rotate-secret": {"template": "rotate the token"}},
            "permission": {"read": {"*.secret": "deny"}},
        }

    shown = masked_config(Config.model_validate(config("sk-1", "t", "user:pw", "v")))
    assert shown == config(*[MASK] * 4)


@pytest.mark.parametrize("name", ["tools", "prompt", "description", "permission", "template"])
def test_what_an_entry_is_called_hides_no_secret_of_it(name: str) -> None:
    provider = {"options": {"apiKey": "hush"}, "models": {name: {"headers": {"X": "hush"}}}}
    server = {"type": "remote", "url": "http://x", "headers": {"X": "hush"}, "oauth": {"clientSecret": "hush"}}
    agent = {"options": {"apiKey": "hush"}, "prompt": "Say the token."}
    shown = masked_config(Config.model_validate({"provider": {name: provider}, "mcp": {name: server}, "agent": {name: agent}}))
    assert "hush" not in json.dumps(shown) and shown["agent"][name]["prompt"] == "Say the token."
