"""Whose word counts for a provider: the operator's, the project's, or both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.project.config.flags import Flags
from app.project.config.loader import LoadedConfig, load
from app.providers.catalogue import Catalogue
from app.providers.connected import ProviderSettings, ServerKeys, connect
from app.schema.config import Config
from app.schema.model import ApiAuth, Auth, ProviderInfo
from app.util.project_files import ProjectBounds

KNOWN = Catalogue()
NO_KEYS = ServerKeys({}, {})
OWN: dict[str, Auth] = {"corp": ApiAuth(key="sk-own"), "anthropic": ApiAuth(key="sk-own")}
FREE = {"input": 0, "output": 0}
MINE = "http://mine/v1"
SONNET = "claude-sonnet-4-5"


def corp(**options: Any) -> dict[str, Any]:
    models = {"big": {"id": "big-2", "cost": {"input": 3, "output": 4}}, "small": {}}
    return {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://corp/v1", **options}, "models": models}


def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: dict[str, Any], project: dict[str, Any]) -> LoadedConfig:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for place, config in ((tmp_path / "config" / "opencode", operator), (tmp_path / "project", project)):
        place.mkdir(parents=True)
        (place / "opencode.json").write_text(Config.model_validate(config).model_dump_json(exclude_unset=True, by_alias=True))
    project = tmp_path / "project"
    return load(project, project, Flags(), None, {}, replace(ProjectBounds.of(project, project), trusted=False))


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(operator: dict[str, Any], project: dict[str, Any], *keys: Any, **options: Any) -> dict[str, ProviderInfo]:
        config = loaded(tmp_path, monkeypatch, {"provider": operator}, {"provider": project})
        return connect(KNOWN, ProviderSettings.of_loaded(config, config.config), *(keys or (NO_KEYS,)), **options)

    return of


def test_what_the_operator_names_is_the_operators(connected: Any) -> None:
    said = {"options": {"baseURL": MINE, "headers": {"X": "y"}}, "npm": "@ai-sdk/anthropic", "name": "Evil", "env": ["HOME"]}
    [info] = connected({"corp": corp(apiKey="sk-corp")}, {"corp": said}).values()
    assert info.options == {"baseURL": "http://corp/v1", "apiKey": "sk-corp"} and info.name == "corp" and info.env == []
    assert {model.api.npm for model in info.models.values()} == {"@ai-sdk/openai-compatible"}


def test_a_model_keeps_its_price_under_each_name(connected: Any) -> None:
    said = {
        "big": {"id": "other", "cost": FREE},
        "mine": {"id": "big", "name": "Mine", "cost": FREE},
        "new": {},
        "x": {"id": "y"},
    }
    [info] = connected({"corp": corp()}, {"corp": {"models": said}}).values()
    found = {id_: (model.api.id, model.cost.input, model.name) for id_, model in info.models.items()}
    assert found == {"big": ("big-2", 3, "big"), "small": ("small", 0, "small"), "mine": ("big-2", 3, "Mine")}


def test_a_listed_model_keeps_its_price_with_a_key_of_the_environment(connected: Any) -> None:
    price = KNOWN.models("anthropic")[SONNET].cost
    models = {SONNET: {"cost": FREE, "provider": {"api": MINE}}, "alias": {"id": SONNET, "cost": FREE}, "gone": {"id": "nobody"}}
    env = {"ANTHROPIC_API_KEY": "sk-server"}
    [info] = connected({}, {"anthropic": {"api": MINE, "models": models}}, ServerKeys(env, {})).values()
    assert info.key == "sk-server" and "gone" not in info.models and price.input > 0
    for model in (info.models[SONNET], info.models["alias"]):
        assert model.cost == price and model.api.id == SONNET and "anthropic.com" in model.api.url


@pytest.mark.parametrize("narrowed", [{"blacklist": ["big"]}, {"whitelist": ["small"]}])
def test_no_other_name_brings_back_a_model_that_the_operator_hides(connected: Any, narrowed: dict[str, Any]) -> None:
    said = {"whitelist": [], "blacklist": [], "models": {"mine": {"id": "big"}, "big": {}}}
    [info] = connected({"corp": {**corp(), **narrowed}}, {"corp": said}).values()
    assert set(info.models) == {"small"}


def test_with_a_key_of_ones_own_both_say_and_nothing_secret_of_the_operators_goes_along(connected: Any) -> None:
    entry = corp(apiKey="sk-corp", headers={"X-Api": "hush"}, region="eu", baseURL="http://user:hush@corp/v1?key=hush")
    entry["models"]["big"] |= {"headers": {"X-Model": "hush"}, "options": {"accessKeyId": "hush", "effort": "low"}}
    said = {"options": {"apiKey": "sk-file", "headers": {"X-Mine": "yes", "Authorization": "no"}}, "models": {"new": {}}}
    [info] = connected({"corp": entry}, {"corp": said}, NO_KEYS, {"corp": OWN["corp"]}, shares_server_keys=False).values()
    assert info.key == "sk-own"
    assert info.options == {"baseURL": "http://corp/v1", "region": "eu", "headers": {"X-Mine": "yes"}}
    assert info.models["big"].options == {"effort": "low"} and info.models["big"].headers == {} and "new" in info.models


def test_with_a_key_of_ones_own_the_project_says_where_it_goes(connected: Any) -> None:
    said = {"options": {"baseURL": MINE}}
    found = connected({"corp": corp(apiKey="x")}, {"corp": said, "anthropic": said}, NO_KEYS, OWN, shares_server_keys=False)
    assert [(id_, info.options["baseURL"], info.key) for id_, info in sorted(found.items())] == [
        ("anthropic", MINE, "sk-own"),
        ("corp", MINE, "sk-own"),
    ]


def test_a_key_of_the_store_makes_a_provider_the_operators_who_has_to_describe_it(connected: Any) -> None:
    stored: dict[str, Auth] = {"corp": ApiAuth(key="sk-server")}
    found = connected({}, {"corp": corp(), "own": corp(apiKey="x")}, ServerKeys({}, stored))
    assert set(found) == {"own"} and found["own"].key is None


@pytest.mark.parametrize(
    "secret", [{"apiKey": "x"}, {"headers": {"X-Odd": "x"}}, {"baseURL": "http://corp?a=b"}, {"baseURL": "http://u:p@corp"}]
)
def test_without_sharing_nobody_has_what_the_operators_layers_have_a_secret_of(connected: Any, secret: dict[str, Any]) -> None:
    found = connected({"corp": corp(**secret), "open": corp()}, {"corp": corp()}, NO_KEYS, {}, shares_server_keys=False)
    assert set(found) == {"open"}


def test_what_the_operators_plugin_says_is_the_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(tmp_path, monkeypatch, {"provider": {"corp": corp()}}, {"provider": {"corp": {"options": {"baseURL": MINE}}}})
    left = config.config.layer()
    left["provider"]["corp"]["options"]["headers"] = {"X-Api": "of the plugin"}
    left["provider"]["added"] = corp(apiKey="x")
    found = connect(KNOWN, ProviderSettings.of_loaded(config, Config.model_validate(left)), NO_KEYS)
    assert found["corp"].options == {"baseURL": "http://corp/v1", "headers": {"X-Api": "of the plugin"}}
    assert found["added"].options["apiKey"] == "x"
