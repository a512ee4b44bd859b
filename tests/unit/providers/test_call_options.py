"""With what a model is called: sampling, limits, options and headers."""

from types import SimpleNamespace

import pytest
from fake_provider import model as plain_model

from app.project.config.flags import Flags
from app.providers.base import Npm
from app.providers.options import call_options
from app.schema.model import Agent, Capabilities, Model, ModelLimit


def model(id_: str, provider: str = "p", npm: str = Npm.OPENAI_COMPATIBLE, **more: object) -> Model:
    can = {"capabilities": Capabilities(temperature=True, reasoning=True), "limit": ModelLimit(output=64_000)}
    return plain_model(id_, provider=provider, npm=npm, **{**can, **more})


def agent(**fields: object) -> Agent:
    return Agent.model_validate({"name": "build", "mode": "primary", "permission": [], **fields})


def call(of: Model, by: Agent | None = None, variant: str | None = None, **more: object) -> SimpleNamespace:
    return SimpleNamespace(**call_options(of, by or agent(), variant, session_id="ses_1", **{"flags": Flags(), **more}))


SAMPLING = {
    "qwen3-coder": (0.55, 1, None),
    "gemini-3-pro": (1.0, 0.95, 64),
    "minimax-m2": (1.0, 0.95, 20),
    "MiniMax-M2.1": (1.0, 0.95, 40),
    "kimi-k2": (0.6, None, None),
    **dict.fromkeys(("glm-4.6", "glm-4.7", "kimi-k2-thinking"), (1.0, None, None)),
    **dict.fromkeys(("claude-opus-4-5", "gpt-5"), (None, None, None)),
}


@pytest.mark.parametrize("model_id", SAMPLING)
def test_sampling_by_model(model_id):
    options = call(model(model_id, npm=Npm.OPENROUTER))
    assert (options.temperature, options.top_p, options.top_k) == SAMPLING[model_id]


@pytest.mark.parametrize("model_id", SAMPLING)
@pytest.mark.parametrize(("npm", "is_told"), [(Npm.ANTHROPIC, True), (Npm.OPENAI_COMPATIBLE, False), ("@ai-sdk/xai", False)])
def test_only_who_knows_top_k_is_told_one_by_itself(npm, is_told, model_id):
    """Servers of Chat Completions refuse requests with fields that they do not know."""
    assert call(model(model_id, npm=npm)).top_k == (SAMPLING[model_id][2] if is_told else None)


def test_the_agent_decides_over_the_model_and_a_model_without_temperature_gets_none():
    options = call(model("qwen3"), agent(temperature=0, topP=0.3))
    assert (options.temperature, options.top_p) == (0, 0.3)
    assert call(model("qwen3", capabilities=Capabilities()), agent(temperature=0.2)).temperature is None


@pytest.mark.parametrize(
    ("limit", "flag", "expected"), [(64_000, None, 32_000), (8_000, None, 8_000), (0, None, 32_000), (64_000, 50_000, 50_000)]
)
def test_the_answer_is_capped(limit, flag, expected):
    flags = Flags(experimental_output_token_max=flag)
    assert call(model("m", limit=ModelLimit(output=limit)), flags=flags).max_output_tokens == expected


def test_layers_merge_in_order():
    of = model("m", options={"a": {"x": 1, "y": 1}, "b": 1}, variants={"high": {"a": {"y": 3}, "c": 3}})
    by = agent(options={"a": {"y": 2}, "b": 2})
    assert call(of, by, "high").options == {"a": {"x": 1, "y": 3}, "b": 2, "c": 3}
    assert call(of, by, "unknown").options == {"a": {"x": 1, "y": 2}, "b": 2}
    assert call(model("m", variants={"high": {"c": 3}}), None, "high", small=True).options == {}, "nor in a small call"


SEALED, COUNTED = {"include": ["reasoning.encrypted_content"], "reasoningSummary": "auto"}, {"usage": {"include": True}}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (model("gpt-4o", "openai", Npm.OPENAI), {"store": False, "promptCacheKey": "ses_1"}),
        (model("gpt-5", "openai", Npm.OPENAI), {"store": False, "promptCacheKey": "ses_1", "reasoningEffort": "medium"}),
        (model("gpt-5.1", "other"), {"reasoningEffort": "medium", "textVerbosity": "low"}),
        (model("gpt-5.1-codex", "other"), {"reasoningEffort": "medium"}),
        (model("gpt-5-pro", "other"), {}),
        (model("gpt-5-chat-latest", "other"), {}),
        (model("gpt-5.1", "azure"), {"reasoningEffort": "medium"}),
        (model("gpt-5", "opencode"), {"reasoningEffort": "medium", "promptCacheKey": "ses_1", **SEALED}),
        (model("x", "openrouter", Npm.OPENROUTER), COUNTED),
        (model("google/gemini-3-pro", "openrouter", Npm.OPENROUTER), {**COUNTED, "reasoning": {"effort": "high"}}),
        (model("x", "baseten"), {"chat_template_args": {"enable_thinking": True}}),
        (model("glm-4.7", "zai"), {"thinking": {"type": "enabled", "clear_thinking": False}}),
        (model("x", "venice"), {"promptCacheKey": "ses_1"}),
        (model("gemini-2.5-pro", "google", Npm.GOOGLE), {"thinkingConfig": {"includeThoughts": True}}),
        (model("gemini-3-pro", "google", Npm.GOOGLE), {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"}}),
        (model("claude-opus-4-5", "anthropic", Npm.ANTHROPIC), {}),
    ],
)
def test_default_options(of, expected):
    assert call(of).options == expected
    assert call(model("m"), provider_options={"setCacheKey": True}).options == {"promptCacheKey": "ses_1"}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (model("gpt-5-nano", "openai", Npm.OPENAI), {"store": False, "reasoningEffort": "minimal"}),
        (model("gpt-5.1", "openai", Npm.OPENAI), {"store": False, "reasoningEffort": "low"}),
        (model("gpt-4o", "openai", Npm.OPENAI, capabilities=Capabilities()), {"store": False}),
        (model("gemini-3-flash", "google", Npm.GOOGLE), {"thinkingConfig": {"thinkingLevel": "minimal"}}),
        (model("gemini-2.5-flash", "google", Npm.GOOGLE), {"thinkingConfig": {"thinkingBudget": 0}}),
        (model("google/gemini-2.5-flash", "openrouter", Npm.OPENROUTER), {"reasoning": {"enabled": False}}),
        (model("openai/x", "openrouter", Npm.OPENROUTER), {"reasoningEffort": "minimal"}),
        (model("claude-haiku-4-5", "anthropic", Npm.ANTHROPIC), {}),
    ],
)
def test_small_options(of, expected):
    assert call(of, small=True).options == expected


def test_headers_are_the_models_own_but_opencodes_providers_are_told_where_a_call_comes_from():
    assert call(model("m")).headers == {}
    assert call(model("m", headers={"User-Agent": "mine", "X": "1"})).headers == {"User-Agent": "mine", "X": "1"}
    origin = {"project": "p", "session": "ses_1", "request": "msg_1", "client": "cli"}
    told = {f"x-opencode-{name}": value for name, value in origin.items()}
    assert call(model("m", "opencode"), origin=origin).headers == told
