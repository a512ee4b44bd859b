"""The catalogue, assembly and what clients are shown."""

import importlib.util
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fake_provider import reasoning_model

from app.providers.base import Npm
from app.providers.catalogue import MODELS_FILE, Catalogue, unconnected_provider_info
from app.providers.connected import ProviderSettings, assemble
from app.providers.options import derive_variants
from app.providers.selection import auth_methods, config_providers, provider_list
from app.schema.model import ApiAuth, CachePrice, Capabilities, Model, ModelLimit, OAuth, ProviderInfo

PROVIDERS: dict[str, Any] = {
    "acme": {"name": "Acme", "env": ["ACME_KEY"], "npm": Npm.OPENAI_COMPATIBLE, "api": "https://acme/v1"},
    "duo": {"name": "Duo", "env": ["DUO_KEY", "DUO_OTHER_KEY"], "npm": Npm.ANTHROPIC, "api": "https://duo/v1"},
}
DEARER = {"input": 3, "output": 4, "tier": {"type": "context", "size": 272_000}}


class SmallCatalogue(Catalogue):
    """Two providers with a few models; counts what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.providers = PROVIDERS

    def entries(self, provider_id: str) -> dict[str, Any]:
        self.loaded.append(provider_id)
        statuses = {"big": "active", "early": "alpha", "old": "deprecated"}
        return {id_: listed(id_, status) for id_, status in statuses.items()} if provider_id in PROVIDERS else {}


def listed(model_id: str, status: str) -> dict[str, Any]:
    named = {"id": model_id, "name": model_id.title(), "family": "bigs", "status": status, "temperature": True, "reasoning": True}
    cost = {"input": 1, "output": 2, "cache_read": 0.1, "tiers": [DEARER]}
    return {**named, "cost": cost, "limit": {"context": 1000, "input": 900, "output": 100}}


def connect(config: dict[str, Any] | None = None, env: dict[str, str] | None = None, **auth: Any) -> dict[str, ProviderInfo]:
    env = env or {}
    return assemble(SmallCatalogue(), ProviderSettings.of(config or {}, env), env, auth)


LIMIT, COST = {"context": 100000, "output": 8000}, {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
MAIN = {"name": "Main", "tool_call": True, "limit": LIMIT, "cost": COST}
ENTRY = {"npm": Npm.OPENAI_COMPATIBLE, "name": "Fake", "options": {"baseURL": "http://llm/v1", "apiKey": "k"}}
FAKE = ENTRY | {"models": {"main": MAIN}}


def of_acme(model_id: str, **entry: Any) -> Model:
    """A model, where the configuration says this of it."""
    return connect({"provider": {"acme": {"models": {model_id: entry}}}})["acme"].models[model_id]


@pytest.mark.parametrize(
    ("config", "env", "auth", "found"),
    [
        ({}, {"ACME_KEY": "secret"}, {}, ("env", "secret", {})),
        ({}, {"ACME_KEY": "env"}, {"acme": ApiAuth(key="stored")}, ("api", "stored", {})),
        ({"provider": {"acme": {"options": {"a": 5}}}}, {"ACME_KEY": "env"}, {}, ("config", "env", {"a": 5})),
    ],
    ids=["a variable", "a stored key wins over the environment", "config is the source, and keeps the environment's key"],
)
def test_what_connects_a_provider_and_what_its_key_is(config, env, auth, found):
    info = connect(config, env, **auth)["acme"]
    assert (info.source, info.key, info.options) == found
    assert (info.name, info.env) == ("Acme", ["ACME_KEY"])


def test_of_several_variables_the_first_that_is_set_is_the_key_and_other_logins_are_none():
    assert connect(env={"DUO_KEY": "", "DUO_OTHER_KEY": "second"})["duo"].key == "second"
    assert "acme" not in connect(acme=OAuth(refresh="r", access="a", expires=1))


def test_order_is_environment_then_stored_keys_then_config_and_no_other_models_are_loaded():
    connected = connect({"provider": {"fake": FAKE, "acme": {}}}, env={"DUO_KEY": "x"}, acme=ApiAuth(key="k"))
    assert list(connected) == ["duo", "acme", "fake"]
    known = SmallCatalogue()
    assemble(known, ProviderSettings.of({}, {}), {"ACME_KEY": "x"}, {})
    assert known.loaded == ["acme"]


def test_a_model_that_nobody_knows_gets_defaults():
    model = connect({"provider": {"fake": FAKE}})["fake"].models["main"]
    text_only = {"text": True, "audio": False, "image": False, "video": False, "pdf": False}
    unable = dict.fromkeys(("temperature", "reasoning", "attachment", "interleaved"), False)
    api = {"id": "main", "url": "", "npm": Npm.OPENAI_COMPATIBLE}
    named = {"id": "main", "providerID": "fake", "api": api, "name": "Main", "family": "", "status": "active", "release_date": ""}
    can = {**unable, "toolcall": True, "input": text_only, "output": text_only}
    cost = {"input": 3, "output": 15, "cache": {"read": 0.3, "write": 3.75}}
    plain: dict[str, Any] = {"options": {}, "headers": {}, "variants": {}}
    assert model.wire() == {**named, **plain, "capabilities": can, "limit": LIMIT, "cost": cost}


def price(input_: float, output: float, read: float = 0) -> dict[str, Any]:
    return {"input": input_, "output": output, "cache": {"read": read, "write": 0}}


def test_a_known_model_keeps_what_the_config_does_not_mention():
    model = of_acme("big", limit={"context": 7}, cost={"input": 9, "output": 9})
    assert (model.name, model.capabilities.reasoning, model.api.url) == ("Big", True, "https://acme/v1")
    assert model.limit == ModelLimit(context=7, input=900, output=100)
    tiers = [{**price(3, 4), "tier": {"type": "context", "size": 272_000}}]
    assert model.cost.wire() == {**price(9, 9, 0.1), "tiers": tiers, "experimentalOver200K": price(3, 4)}
    dearer = of_acme("big", cost={"input": 9, "output": 9, "context_over_200k": {"input": 18, "output": 19}}).cost
    assert dearer.tiers is None and dearer.experimental_over_200k.wire() == price(18, 19), "in place of listed tiers"


def test_null_leaves_a_listed_model_as_it_is():
    fields = dict.fromkeys(("name", "cost", "limit", "reasoning", "modalities", "provider"))
    models = connect({"provider": {"acme": {"name": None, "api": None, "env": None, "models": {"big": fields}}}})["acme"].models
    assert models["big"] == SmallCatalogue().models("acme")["big"]


def test_a_config_model_can_stand_for_a_listed_one_under_its_own_name():
    model = of_acme("mine", id="big", options={"a": 1}, headers={"h": "v"})
    assert (model.id, model.api.id, model.name, model.limit.context) == ("mine", "big", "mine", 1000)
    assert (model.options, model.headers) == ({"a": 1}, {"h": "v"})


def test_config_says_what_a_model_can_do():
    media = {"input": ["text", "image"], "output": ["text"]}
    fields = {"attachment": True, "temperature": True, "tool_call": False, "modalities": media}
    fields |= {"interleaved": {"field": "reasoning_content"}, "provider": {"npm": "@ai-sdk/openai"}}
    own = {"interleaved": "reasoning", "provider": {"api": "http://own"}}
    models = connect({"provider": {"fake": {"api": "http://x", "models": {"m": fields, "n": own}}}})["fake"].models
    assert (models["n"].capabilities.interleaved.field, models["n"].api.url) == ("reasoning", "http://own")
    can, api = models["m"].capabilities, models["m"].api
    assert (can.attachment, can.temperature, can.toolcall, can.input.image, can.input.pdf) == (True, True, False, True, False)
    assert (can.interleaved.field, api.npm, api.url) == ("reasoning_content", "@ai-sdk/openai", "http://x")


def policy(effect, resource):
    return {"action": "provider.use", "effect": effect, "resource": resource}


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"disabled_providers": ["acme"]}, ["duo"]),
        ({"enabled_providers": ["acme"]}, ["acme"]),
        ({"enabled_providers": ["acme", "duo"], "disabled_providers": ["duo"]}, ["acme"]),
        ({"experimental": {"policies": [policy("deny", "*"), policy("allow", "du*")]}}, ["duo"]),
        ({"experimental": {"policies": [policy("allow", "acme"), policy("deny", "ac*")]}}, ["duo"]),
        ({"enabled_providers": []}, []),
    ],
)
def test_enabled_and_disabled_providers(config, kept):
    assert list(connect(config, env={"ACME_KEY": "x", "DUO_KEY": "y"})) == kept


def test_which_models_of_a_provider_are_offered_and_without_one_it_is_dropped():
    assert list(connect(env={"ACME_KEY": "x"})["acme"].models) == ["big"], "no alpha and no deprecated one"
    flagged = {"ACME_KEY": "x", "OPENCODE_ENABLE_EXPERIMENTAL_MODELS": "true"}
    assert list(connect(env=flagged)["acme"].models) == ["big", "early"]

    def offered(models: str, **narrowed: list[str]) -> list[str]:
        entry = {"models": {name: {} for name in models}, **narrowed}
        found = connect({"provider": {"f": entry, "fake": FAKE}})
        return list(found["f"].models) if "f" in found else []

    assert offered("abc", whitelist=["a", "b"]) == ["a", "b"] and offered("abc", blacklist=["a"]) == ["b", "c"]
    assert offered("a", blacklist=["a"]) == []


def test_the_scripted_provider_is_offered_and_labelled_where_nothing_else_is_or_for_a_script():
    info = connect()["scripted"]
    assert list(info.models) == ["rules", "title"] and "no language model" in info.name
    assert list(connect({"provider": {"fake": FAKE}})) == ["fake"]
    assert list(connect({"provider": {"fake": FAKE}}, env={"OPENSESSION_SCRIPT": "/x.json"})) == ["fake", "scripted"]
    assert connect({"disabled_providers": ["scripted"]}) == {}


def test_variants_are_derived_and_merged_with_the_config():
    model = of_acme("big", variants={"low": {"disabled": True}, "high": {"extra": 1}, "own": {"reasoningEffort": "x"}})
    efforts = {"medium": {"reasoningEffort": "medium"}, "high": {"reasoningEffort": "high", "extra": 1}}
    assert model.variants == {**efforts, "own": {"reasoningEffort": "x"}}


EFFORTS: list[tuple[str, str, str]] = [
    ("anything", Npm.OPENAI_COMPATIBLE, "low medium high"),
    ("claude-sonnet-4-5", Npm.ANTHROPIC, "high max"),
    ("claude-opus-4-7", Npm.ANTHROPIC, "low medium high max"),
    ("gemini-2.5-pro", Npm.GOOGLE, "high max"),
    ("gemini-3-pro", Npm.GOOGLE, "low high"),
    ("gpt-5", Npm.OPENAI, "minimal low medium high"),
    ("gpt-5.1", Npm.OPENAI, "none low medium high"),
    ("gpt-5.2", Npm.OPENAI, "none low medium high xhigh"),
    ("gpt-5.1-codex", Npm.OPENAI, "low medium high"),
    ("gpt-5-pro", Npm.OPENAI, ""),
    ("gpt-" + "9" * 5000, Npm.OPENAI, "low medium high"),
    ("anthropic/claude-opus-4.6", Npm.OPENROUTER, ""),
    ("openai/gpt-5", Npm.OPENROUTER, "none minimal low medium high xhigh"),
    *((id_, Npm.OPENAI_COMPATIBLE, "") for id_ in ("deepseek-reasoner", "glm-4.7")),
    *(("grok-4", "@ai-sdk/xai", ""), ("grok-3-mini", "@ai-sdk/xai", "low high")),
]


@pytest.mark.parametrize(("model_id", "package", "names"), EFFORTS)
def test_which_efforts_a_model_offers(model_id, package, names):
    model = reasoning_model(model_id, npm=package)
    assert list(derive_variants(model)) == names.split()
    assert derive_variants(model.model_copy(update={"capabilities": Capabilities()})) == {}


@pytest.mark.parametrize(
    ("model_id", "package", "stated", "names"),
    [
        ("glm-5.3", Npm.OPENAI_COMPATIBLE, [{"type": "toggle"}, {"type": "effort", "values": ["low", "max"]}], ["low", "max"]),
        ("grok-4.7", "@ai-sdk/xai", [{"type": "effort", "values": [None, "high"]}], ["none", "high"]),
        ("kimi-k2.6", Npm.OPENAI_COMPATIBLE, [{"type": "toggle"}], ["low", "medium", "high"]),
        ("anything", Npm.OPENAI_COMPATIBLE, [], []),
        ("claude-opus-4-5", Npm.ANTHROPIC, [{"type": "effort", "values": ["low"]}], ["high", "max"]),
    ],
)
def test_efforts_that_models_dev_states_take_the_place_of_guesses(model_id, package, stated, names):
    assert list(derive_variants(reasoning_model(model_id, npm=package), stated)) == names


def test_a_thinking_budget_for_older_claude_models():
    variants = derive_variants(reasoning_model("claude-sonnet-4-5", npm=Npm.ANTHROPIC))
    budgets = (("high", 16_000), ("max", 31_999))
    assert variants == {name: {"thinking": {"type": "enabled", "budgetTokens": size}} for name, size in budgets}


def test_the_connected_are_listed_with_their_default_and_over_the_known():
    shown = config_providers(connect({"provider": {"fake": FAKE}}, env={"ACME_KEY": "x"}))
    assert [info.id for info in shown.providers] == ["acme", "fake"] and shown.default == {"acme": "big", "fake": "main"}
    known = SmallCatalogue()
    every = provider_list(known, assemble(known, ProviderSettings(), {"ACME_KEY": "x"}, {}), ProviderSettings())
    assert [(info.id, info.source) for info in every.all] == [("acme", "env"), ("duo", "custom")]
    assert (every.connected, every.default) == (["acme"], {"acme": "big", "duo": "big"})
    without = provider_list(known, {}, ProviderSettings(disabled=frozenset({"duo"})))
    assert [info.id for info in without.all] == ["acme"]


def test_no_secret_leaves():
    headers = {"Authorization": "Bearer hush", "X-Auth": "hush", "X-Org": "hush"}
    model = {"headers": {"x-api-key": "hush"}, "options": {"nested": {"secretKey": "hush"}}, "variants": {"v": {"token": "hush"}}}
    options = {"apiKey": "hush", "baseURL": "http://me:hush@llm/v1?key=hush", "headers": headers}
    entry = {**FAKE, "options": options, "models": {"m": model}}
    connected = connect({"provider": {"fake": entry}}, env={"ACME_KEY": "hush"})
    shown = config_providers(connected).wire_json() + provider_list(SmallCatalogue(), connected, ProviderSettings()).wire_json()
    assert b"hush" not in shown and b'"X-Org"' in shown
    assert (connected["fake"].options["apiKey"], connected["acme"].key) == ("hush", "hush")


def test_every_known_provider_takes_a_key_and_has_chat_models_only():
    assert [method.wire() for method in auth_methods(Catalogue())["anthropic"]] == [{"type": "api", "label": "API key"}]
    for provider_id in Catalogue().providers:
        models = Catalogue().models(provider_id)
        assert models, provider_id
        assert not [id_ for id_ in models if "embed" in id_ or "whisper" in id_ or "tts" in id_]
        for model in models.values():
            assert model.cost.input >= 0 and model.limit.context > 0 and model.api.url.startswith("http"), model


def test_real_models_have_prices_windows_and_abilities():
    sonnet = Catalogue().models("anthropic")["claude-sonnet-4-5"]
    assert (sonnet.provider_id, sonnet.api.npm, sonnet.api.url) == ("anthropic", Npm.ANTHROPIC, "https://api.anthropic.com/v1")
    assert (sonnet.cost.input, sonnet.cost.output) == (3, 15)
    assert sonnet.cost.cache == CachePrice(read=0.3, write=3.75)
    assert sonnet.limit.context >= 200_000 and sonnet.limit.output == 64_000
    assert sonnet.capabilities.reasoning and sonnet.capabilities.input.pdf
    assert (sonnet.family, sonnet.release_date, list(sonnet.variants)) == ("claude-sonnet", "2025-09-29", ["high", "max"])
    tiers = Catalogue().models("openai")["gpt-5.5"].cost
    assert [(tier.tier.size, tier.input, tier.output) for tier in tiers.tiers] == [(272_000, 10, 45)]
    assert tiers.experimental_over_200k.input == 10


def test_the_list_says_of_when_it_is_and_leaves_out_what_cannot_be_connected():
    first = json.loads(MODELS_FILE.read_text().partition("\n")[0])
    assert date.fromisoformat(first["date"]) and first["source"] == "https://models.dev/api.json"
    assert list(unconnected_provider_info(SmallCatalogue(), "acme").models) == ["big"] and Catalogue().models("nobody") == {}


def test_the_script_makes_a_list_of_chat_models_with_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("refresh_models", Path(__file__).parents[3] / "scripts/refresh_models.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    cost = {"input": 1, "output": 2, "input_audio": 9, "context_over_200k": {"input": 2, "output": 4}}
    kept = {
        "id": "chat",
        "name": "Chat",
        "tool_call": True,
        "modalities": {"input": ["text"], "output": ["text"]},
        "limit": LIMIT,
    }
    chat = {**kept, "description": "Talks", "reasoning": False, "cost": cost}
    embeds = {"tool_call": False, "cost": {"input": 1, "output": 0}}
    paints = {"modalities": {"input": ["text"], "output": ["image"]}}
    others = {"embeds": embeds, "paints": paints, "speaks-as-google": {"provider": {"npm": "@ai-sdk/google"}}}
    models = {"chat": chat} | {name: {**chat, "id": name, **other} for name, other in others.items()}
    entry = {"env": ["KEY"], "npm": "x", "api": "http://x", "models": models}
    found = {id_: {"id": id_, "name": id_.title(), **entry} for id_ in script.PROVIDERS}
    (tmp_path / "api.json").write_text(json.dumps(found))
    monkeypatch.setattr(script, "TARGET", tmp_path / "models.jsonl")
    script.main(str(tmp_path / "api.json"), "2026-01-31")
    made = Catalogue(tmp_path / "models.jsonl")
    assert json.loads((tmp_path / "models.jsonl").open().readline())["date"] == "2026-01-31"
    assert list(made.providers) == list(script.PROVIDERS)
    assert made.entries("openai") == {"chat": {"of": "openai", **kept, "cost": {"input": 1, "output": 2}}}
