"""The catalogue, assembly and what clients are shown."""

import subprocess
import sys
from typing import Any

import pytest

from app.provider.models import known_providers as npm
from app.provider.models.assembly import ProviderSettings, assemble
from app.provider.models.catalogue import KnownCatalogue, known_info
from app.provider.models.families import family_of
from app.provider.models.known_providers import KnownProvider
from app.provider.models.listing import auth_methods, config_providers, provider_list
from app.provider.models.variants import derive_variants
from app.schema.model import (
    ApiAuth,
    CachePrice,
    Capabilities,
    Model,
    ModelApi,
    ModelLimit,
    ModelPrice,
    OAuth,
    Price,
    ProviderInfo,
)


class SmallCatalogue:
    """Two providers with a few models; counts what is loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.providers = {
            "acme": KnownProvider("acme", "Acme", ("ACME_KEY",), npm.OPENAI_COMPATIBLE, "https://acme/v1", "acme"),
            "duo": KnownProvider("duo", "Duo", ("DUO_KEY", "DUO_OTHER_KEY"), npm.ANTHROPIC, "https://duo/v1", "duo"),
        }

    def models(self, provider_id: str) -> dict[str, Model]:
        self.loaded.append(provider_id)
        statuses = {"big": "active", "early": "alpha", "old": "deprecated"}
        known = self.providers.get(provider_id)
        return {id_: listed(known, id_, status) for id_, status in statuses.items()} if known else {}

    def listed_as(self, provider_id: str, model_id: str) -> str | None:
        return None


def listed(provider: KnownProvider, model_id: str, status: Any) -> Model:
    return Model(
        id=model_id,
        provider_id=provider.id,
        api=ModelApi(id=model_id, url=provider.url or "", npm=provider.npm),
        name=model_id.title(),
        capabilities=Capabilities(temperature=True, reasoning=True),
        cost=ModelPrice(input=1, output=2, cache=CachePrice(read=0.1), experimental_over_200k=Price(input=3, output=4)),
        limit=ModelLimit(context=1000, input=900, output=100),
        status=status,
    )


def connect(config: dict[str, Any] | None = None, env: dict[str, str] | None = None, **auth: Any) -> dict[str, ProviderInfo]:
    env = env or {}
    return assemble(SmallCatalogue(), ProviderSettings.of(config or {}, env), env, auth)


FAKE = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "Fake",
    "options": {"baseURL": "http://llm/v1", "apiKey": "k"},
    "models": {
        "main": {
            "name": "Main",
            "tool_call": True,
            "limit": {"context": 100000, "output": 8000},
            "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
        }
    },
}


# sources


def test_an_environment_variable_connects_a_provider_and_is_its_key():
    info = connect(env={"ACME_KEY": "secret"})["acme"]
    assert (info.source, info.key, info.name, info.env) == ("env", "secret", "Acme", ["ACME_KEY"])


def test_of_several_variables_the_first_that_is_set_is_the_key():
    assert connect(env={"DUO_KEY": "", "DUO_OTHER_KEY": "second"})["duo"].key == "second"


def test_a_stored_key_wins_over_the_environment():
    info = connect(env={"ACME_KEY": "env"}, acme=ApiAuth(key="stored"))["acme"]
    assert (info.source, info.key) == ("api", "stored")


def test_a_stored_login_of_another_kind_does_not_connect():
    assert "acme" not in connect(acme=OAuth(refresh="r", access="a", expires=1))


def test_config_names_the_source_and_keeps_the_key_of_the_environment():
    info = connect({"provider": {"acme": {"options": {"timeout": 5}}}}, env={"ACME_KEY": "env"})["acme"]
    assert (info.source, info.key, info.options) == ("config", "env", {"timeout": 5})


def test_order_is_environment_then_stored_keys_then_config():
    connected = connect({"provider": {"fake": FAKE, "acme": {}}}, env={"DUO_KEY": "x"}, acme=ApiAuth(key="k"))
    assert list(connected) == ["duo", "acme", "fake"]


def test_only_connected_providers_have_their_models_loaded():
    known = SmallCatalogue()
    assemble(known, ProviderSettings.of({}, {}), {"ACME_KEY": "x"}, {})
    assert known.loaded == ["acme"]


# config models


def test_a_model_that_nobody_knows_gets_defaults():
    model = connect({"provider": {"fake": FAKE}})["fake"].models["main"]
    assert model.wire() == {
        "id": "main",
        "providerID": "fake",
        "api": {"id": "main", "url": "", "npm": "@ai-sdk/openai-compatible"},
        "name": "Main",
        "family": "",
        "capabilities": {
            "temperature": False,
            "reasoning": False,
            "attachment": False,
            "toolcall": True,
            "input": {"text": True, "audio": False, "image": False, "video": False, "pdf": False},
            "output": {"text": True, "audio": False, "image": False, "video": False, "pdf": False},
            "interleaved": False,
        },
        "cost": {"input": 3, "output": 15, "cache": {"read": 0.3, "write": 3.75}},
        "limit": {"context": 100000, "output": 8000},
        "status": "active",
        "options": {},
        "headers": {},
        "release_date": "",
        "variants": {},
    }


def test_a_known_model_keeps_what_the_config_does_not_mention():
    config = {"provider": {"acme": {"models": {"big": {"limit": {"context": 7}, "cost": {"input": 9, "output": 9}}}}}}
    model = connect(config)["acme"].models["big"]
    assert (model.name, model.capabilities.reasoning, model.api.url) == ("Big", True, "https://acme/v1")
    assert model.limit == ModelLimit(context=7, input=900, output=100)
    assert model.cost == ModelPrice(
        input=9, output=9, cache=CachePrice(read=0.1), experimental_over_200k=Price(input=3, output=4)
    )


def test_a_config_model_can_stand_for_a_listed_one_under_its_own_name():
    config = {"provider": {"acme": {"models": {"mine": {"id": "big", "options": {"a": 1}, "headers": {"h": "v"}}}}}}
    model = connect(config)["acme"].models["mine"]
    assert (model.id, model.api.id, model.name, model.limit.context) == ("mine", "big", "mine", 1000)
    assert (model.options, model.headers) == ({"a": 1}, {"h": "v"})


def test_config_says_what_a_model_can_do():
    fields = {
        "attachment": True,
        "temperature": True,
        "tool_call": False,
        "interleaved": {"field": "reasoning_content"},
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "provider": {"npm": "@ai-sdk/openai"},
    }
    own = {"interleaved": "reasoning", "provider": {"api": "http://own"}}
    models = connect({"provider": {"fake": {"api": "http://x", "models": {"m": fields, "n": own}}}})["fake"].models
    assert (models["n"].capabilities.interleaved.field, models["n"].api.url) == ("reasoning", "http://own")
    model = models["m"]
    can = model.capabilities
    assert (can.attachment, can.temperature, can.toolcall, can.input.image, can.input.pdf) == (True, True, False, True, False)
    assert can.interleaved.field == "reasoning_content"
    assert (model.api.npm, model.api.url) == ("@ai-sdk/openai", "http://x")


# filters


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


def test_alpha_models_need_the_flag_and_deprecated_ones_are_gone():
    assert list(connect(env={"ACME_KEY": "x"})["acme"].models) == ["big"]
    flagged = {"ACME_KEY": "x", "OPENCODE_ENABLE_EXPERIMENTAL_MODELS": "true"}
    assert list(connect(env=flagged)["acme"].models) == ["big", "early"]


def test_whitelist_and_blacklist():
    models = {"a": {}, "b": {}, "c": {}}
    assert list(connect({"provider": {"f": {"models": models, "whitelist": ["a", "b"]}}})["f"].models) == ["a", "b"]
    assert list(connect({"provider": {"f": {"models": models, "blacklist": ["a"]}}})["f"].models) == ["b", "c"]


def test_a_provider_without_models_is_dropped():
    assert "f" not in connect({"provider": {"f": {"models": {"a": {}}, "blacklist": ["a"]}, "fake": FAKE}})


# the scripted provider


def test_with_nothing_connected_the_scripted_provider_is_offered_and_labelled():
    info = connect()["scripted"]
    assert list(info.models) == ["rules", "title"]
    assert "no language model" in info.name


def test_beside_a_real_provider_it_is_offered_only_for_a_script():
    assert list(connect({"provider": {"fake": FAKE}})) == ["fake"]
    assert list(connect({"provider": {"fake": FAKE}}, env={"OPENSESSION_SCRIPT": "/x.json"})) == ["fake", "scripted"]


def test_it_can_be_disabled():
    assert connect({"disabled_providers": ["scripted"]}) == {}


# variants


def test_variants_are_derived_and_merged_with_the_config():
    variants = {"low": {"disabled": True}, "high": {"extra": 1}, "own": {"reasoningEffort": "x"}}
    model = connect({"provider": {"acme": {"models": {"big": {"variants": variants}}}}})["acme"].models["big"]
    assert model.variants == {
        "medium": {"reasoningEffort": "medium"},
        "high": {"reasoningEffort": "high", "extra": 1},
        "own": {"reasoningEffort": "x"},
    }


def reasoning_model(model_id: str, package: str) -> Model:
    can = Capabilities(reasoning=True)
    return Model(id=model_id, provider_id="p", api=ModelApi(id=model_id, npm=package), name=model_id, capabilities=can)


@pytest.mark.parametrize(
    ("model_id", "package", "names"),
    [
        ("anything", npm.OPENAI_COMPATIBLE, ["low", "medium", "high"]),
        ("claude-sonnet-4-5", npm.ANTHROPIC, ["high", "max"]),
        ("claude-opus-4-7", npm.ANTHROPIC, ["low", "medium", "high", "max"]),
        ("gemini-2.5-pro", npm.GOOGLE, ["high", "max"]),
        ("gemini-3-pro", npm.GOOGLE, ["low", "high"]),
        ("gpt-5", npm.OPENAI, ["minimal", "low", "medium", "high"]),
        ("gpt-5.1", npm.OPENAI, ["none", "low", "medium", "high"]),
        ("gpt-5.2", npm.OPENAI, ["none", "low", "medium", "high", "xhigh"]),
        ("gpt-5.1-codex", npm.OPENAI, ["low", "medium", "high"]),
        ("gpt-5-pro", npm.OPENAI, []),
        ("openai/gpt-5", npm.OPENROUTER, ["none", "minimal", "low", "medium", "high", "xhigh"]),
        ("deepseek-reasoner", npm.OPENAI_COMPATIBLE, []),
        ("glm-4.7", npm.OPENAI_COMPATIBLE, []),
        ("grok-4", "@ai-sdk/xai", []),
        ("grok-3-mini", "@ai-sdk/xai", ["low", "high"]),
    ],
)
def test_which_efforts_a_model_offers(model_id, package, names):
    assert list(derive_variants(reasoning_model(model_id, package))) == names


def test_a_model_that_does_not_reason_has_no_variants():
    model = reasoning_model("x", npm.OPENAI_COMPATIBLE).model_copy(update={"capabilities": Capabilities()})
    assert derive_variants(model) == {}


def test_a_thinking_budget_for_older_claude_models():
    variants = derive_variants(reasoning_model("claude-sonnet-4-5", npm.ANTHROPIC))
    assert variants["high"] == {"thinking": {"type": "enabled", "budgetTokens": 16000}}
    assert variants["max"] == {"thinking": {"type": "enabled", "budgetTokens": 31999}}


# what clients are shown


def test_config_providers_lists_the_connected_ones_with_their_default():
    shown = config_providers(connect({"provider": {"fake": FAKE}}, env={"ACME_KEY": "x"}))
    assert [info.id for info in shown.providers] == ["acme", "fake"]
    assert shown.default == {"acme": "big", "fake": "main"}


def test_the_provider_list_overlays_the_connected_on_the_known():
    known = SmallCatalogue()
    connected = assemble(known, ProviderSettings(), {"ACME_KEY": "x"}, {})
    shown = provider_list(known, connected, ProviderSettings())
    assert [(info.id, info.source) for info in shown.all] == [("acme", "env"), ("duo", "custom")]
    assert shown.connected == ["acme"]
    assert shown.default == {"acme": "big", "duo": "big"}


def test_the_provider_list_leaves_out_what_the_config_disables():
    known = SmallCatalogue()
    shown = provider_list(known, {}, ProviderSettings(disabled=frozenset({"duo"})))
    assert [info.id for info in shown.all] == ["acme"]


def test_no_secret_leaves():
    entry = {
        **FAKE,
        "options": {
            "apiKey": "hush",
            "baseURL": "http://me:hush@llm/v1?key=hush",
            "headers": {"Authorization": "Bearer hush", "X-Auth": "hush", "X-Org": "hush"},
        },
        "models": {
            "m": {
                "headers": {"x-api-key": "hush"},
                "options": {"nested": {"secretKey": "hush"}},
                "variants": {"v": {"token": "hush"}},
            }
        },
    }
    connected = connect({"provider": {"fake": entry}}, env={"ACME_KEY": "hush"})
    shown = config_providers(connected).wire_json() + provider_list(SmallCatalogue(), connected, ProviderSettings()).wire_json()
    assert b"hush" not in shown
    assert b'"X-Org"' in shown
    assert connected["fake"].options["apiKey"] == "hush"
    assert connected["acme"].key == "hush"


def test_every_known_provider_takes_a_key():
    assert [method.wire() for method in auth_methods(KnownCatalogue())["anthropic"]] == [{"type": "api", "label": "API key"}]


# the real catalogue


def test_real_models_have_prices_windows_and_abilities():
    sonnet = KnownCatalogue().models("anthropic")["claude-sonnet-4-5"]
    assert (sonnet.provider_id, sonnet.api.npm, sonnet.api.url) == ("anthropic", npm.ANTHROPIC, "https://api.anthropic.com/v1")
    assert (sonnet.cost.input, sonnet.cost.output) == (3, 15)
    assert sonnet.cost.cache == CachePrice(read=0.3, write=3.75)
    assert sonnet.cost.experimental_over_200k.input == 6
    assert sonnet.limit.context == 200_000
    assert sonnet.capabilities.reasoning and sonnet.capabilities.input.pdf


@pytest.mark.parametrize("provider_id", list(KnownCatalogue().providers))
def test_every_known_provider_has_chat_models_only(provider_id):
    models = KnownCatalogue().models(provider_id)
    assert models
    assert not [id_ for id_ in models if "embed" in id_ or "whisper" in id_ or "tts" in id_]
    assert all(model.cost.input >= 0 and model.limit.output > 0 for model in models.values())


def test_google_lists_its_own_models_only():
    assert all(id_.startswith(("gemini", "gemma")) for id_ in KnownCatalogue().models("google"))


def test_a_dated_name_is_found_and_a_misspelt_one_is_not():
    known = KnownCatalogue()
    assert known.listed_as("anthropic", "claude-sonnet-4-5-20250929") == "claude-sonnet-4-5"
    assert known.listed_as("anthropic", "claude-sonnet-4-5-typo") is None
    assert known.listed_as("nobody", "x-20250929") is None


def test_models_of_a_provider_that_nobody_knows():
    assert KnownCatalogue().models("nobody") == {}


def test_a_listing_leaves_out_what_cannot_be_connected():
    known = SmallCatalogue()
    assert list(known_info(known, known.providers["acme"]).models) == ["big"]


@pytest.mark.parametrize(
    ("model_id", "reasoning", "image", "output"),
    [
        ("claude-3-5-haiku-latest", False, True, 8192),
        ("anthropic/claude-3.7-sonnet", True, True, 64000),
        ("claude-opus-4-1", True, True, 32000),
        ("claude-opus-4-5", True, True, 64000),
        ("gpt-4o-mini", False, True, 16384),
        ("openai/gpt-5.1", True, True, 128000),
        ("gpt-5-chat-latest", False, True, 16384),
        ("o3-mini", True, False, 65536),
        ("gemini-2.5-flash", True, True, 65536),
        ("grok-4-fast-non-reasoning", False, True, 30000),
        ("some-new-thing", False, False, 8192),
    ],
)
def test_families(model_id, reasoning, image, output):
    family = family_of(model_id)
    can = family.capabilities()
    assert (can.reasoning, can.input.image, family.output, can.toolcall) == (reasoning, image, output, True)


def test_the_price_data_is_not_loaded_for_a_config_provider():
    program = """
import sys
from app.provider import registry
from app.provider.models import listing
from app.provider.models.assembly import ProviderSettings, assemble
from app.provider.models.catalogue import KnownCatalogue
settings = ProviderSettings(entries={"f": {"models": {"m": {}}, "options": {"baseURL": "http://x"}}})
listing.config_providers(assemble(KnownCatalogue(), settings, {}, {})).wire_json()
print([name for name in ("genai_prices", "openai", "anthropic", "rapidfuzz") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
