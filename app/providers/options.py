"""The parameters of a model call: sampling, the output limit, provider options and headers; and a model's variants, the reasoning
efforts that clients choose from: variant name → the options that it adds to a call."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, TypedDict

from app.project.config.flags import Flags
from app.project.config.parse import deep_merge
from app.providers.base import Npm, UnusableOption
from app.schema.model import Agent, Model

# Variants.


Variants = dict[str, dict[str, Any]]

_WITHOUT_EFFORT = re.compile(r"deepseek|minimax|glm|mistral")
_THREE = ("low", "medium", "high")
_SIX = ("none", "minimal", "low", "medium", "high", "xhigh")
_GOOGLE = (Npm.GOOGLE, "@ai-sdk/google-vertex")
_CLAUDE_BUDGETS = {"high": 16_000, "max": 31_999}
_GEMINI_BUDGETS = {"high": 16_000, "max": 24_576}
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d{1,9})(?:\.(\d{1,9}))?(?!\d)")


def derive_variants(model: Model, stated: Sequence[Mapping[str, Any]] | None = None) -> Variants:
    """`stated`: the model's `reasoning_options` in models.dev. If they name no efforts, these are guessed by the name, as in
    OpenCode; an empty list means that there are none."""
    if not model.capabilities.reasoning or stated == []:
        return {}
    name, package = model.id.lower(), model.api.npm
    named = next((option["values"] for option in stated or () if option["type"] == "effort"), None)
    efforts = _guessed(name, package) if named is None else [effort or "none" for effort in named]
    if efforts and package == Npm.ANTHROPIC and claude_version(name) < (4, 6):
        return {key: {"thinking": {"type": "enabled", "budgetTokens": budget}} for key, budget in _CLAUDE_BUDGETS.items()}
    if efforts and package in _GOOGLE and "2.5" in name:
        return {
            key: {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": size}} for key, size in _GEMINI_BUDGETS.items()
        }
    return {effort: _options(package, effort) for effort in efforts}


def _guessed(name: str, package: str) -> Sequence[str]:
    if _WITHOUT_EFFORT.search(name):
        return ()
    if "grok" in name:
        return ("low", "high") if "grok-3-mini" in name else ()
    match package:
        case Npm.ANTHROPIC:
            return (*_THREE, "max")
        case Npm.GOOGLE | "@ai-sdk/google-vertex":
            return ("low", "high")
        case Npm.OPENAI | "@ai-sdk/azure":
            return openai_efforts(name)
        case Npm.OPENROUTER:
            return _SIX if "gpt" in name or "gemini-3" in name else ()
        case "@ai-sdk/gateway":
            return _SIX
        case "@ai-sdk/mistral" | "@ai-sdk/cohere" | "@ai-sdk/perplexity" | Npm.SCRIPTED:
            return ()
        case _:
            return _THREE


def _options(package: str, effort: str) -> dict[str, Any]:
    """Claude decides a budget itself from 4.6 on, and from 4.7 on rejects one."""
    match package:
        case Npm.ANTHROPIC:
            return {"thinking": {"type": "adaptive"}, "effort": effort}
        case Npm.GOOGLE | "@ai-sdk/google-vertex":
            return {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": effort}}
        case Npm.OPENAI | "@ai-sdk/azure":
            return {"reasoningEffort": effort, "reasoningSummary": "auto", "include": ["reasoning.encrypted_content"]}
        case Npm.OPENROUTER:
            return {"reasoning": {"effort": effort}}
        case _:
            return {"reasoningEffort": effort}


def openai_efforts(name: str) -> tuple[str, ...]:
    """The efforts of each generation: `minimal` for gpt-5, `none` from 5.1, `xhigh` from 5.2; none for pro models."""
    if re.search(r"gpt-5-pro", name):
        return ()
    version = gpt_version(name)
    xhigh = ("xhigh",) if version >= (5, 2) else ()
    if "codex" in name or version < (5, 0):
        return (*_THREE, *xhigh)
    lowest = "minimal" if version == (5, 0) else "none"
    return (lowest, *_THREE, *xhigh)


def claude_version(name: str) -> tuple[int, int]:
    """(4, 6) for `claude-opus-4-6` and `anthropic/claude-opus-4.6`, (0, 0) for a name without a version."""
    found = _CLAUDE.search(name)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def gpt_version(name: str) -> tuple[int, int]:
    """(5, 2) for `gpt-5.2-mini`, (0, 0) for a name without a version."""
    found = _GPT.search(name)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


# A call.


Options = dict[str, Any]

OUTPUT_TOKEN_MAX = 32_000
"""The default limit of an answer, whatever the model allows."""


class CallOptions(TypedDict):
    """None: the provider's own default. The field names are those of ModelRequest."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    max_output_tokens: int
    options: Options
    headers: dict[str, str]


def call_options(
    model: Model,
    agent: Agent,
    variant: str | None = None,
    *,
    small: bool = False,
    session_id: str,
    flags: Flags,
    provider_options: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
) -> CallOptions:
    """`small`: a title or another side task, with as little reasoning as the model allows and without the variant. `origin`: the
    headers that tell OpenCode's own providers where a call comes from."""
    base = small_options(model) if small else default_options(model, session_id, provider_options or {})
    chosen = {} if small or not variant else (model.variants or {}).get(variant, {})
    cap = flags.experimental_output_token_max or OUTPUT_TOKEN_MAX
    temperature, top_p, top_k = _sampling(model.id)
    headers = model.headers
    if model.provider_id.startswith("opencode"):
        headers = {**{f"x-opencode-{name}": value for name, value in (origin or {}).items()}, **headers}
    if agent.temperature is not None:
        temperature = agent.temperature
    return CallOptions(
        temperature=temperature if model.capabilities.temperature else None,
        top_p=top_p if agent.top_p is None else agent.top_p,
        top_k=top_k if model.api.npm in _KNOW_TOP_K else None,
        max_output_tokens=min(model.limit.output or cap, cap),
        options=reduce(deep_merge, (base, model.options, agent.options, chosen), {}),
        headers=headers,
    )


Sampling = tuple[float | None, float | None, int | None]

_SAMPLING: tuple[tuple[str, Sampling], ...] = (
    ("qwen", (0.55, 1, None)),
    ("claude", (None, None, None)),
    ("gemini", (1.0, 0.95, 64)),
    (r"minimax-m2\.1", (1.0, 0.95, 40)),
    ("minimax-m2", (1.0, 0.95, 20)),
    (r"glm-4\.[67]", (1.0, None, None)),
    ("kimi-k2.*thinking", (1.0, None, None)),
    ("kimi-k2", (0.6, None, None)),
)
"""OpenCode's defaults by the model's name: temperature, top_p, top_k. The first match counts."""


@lru_cache
def _sampling(model_id: str) -> Sampling:
    return next((values for name, values in _SAMPLING if re.search(name, model_id.lower())), (None, None, None))


_KNOW_TOP_K = (Npm.ANTHROPIC, Npm.OPENROUTER)
"""A server of Chat Completions may refuse a request that has it, and OpenCode leaves it out there."""


def default_options(model: Model, session_id: str, provider_options: Mapping[str, Any]) -> Options:
    """OpenCode's defaults."""
    provider, name, package = model.provider_id, model.api.id, model.api.npm
    options = _storage(model)
    if package == Npm.OPENROUTER:
        options["usage"] = {"include": True}
        if "gemini-3" in name:
            options["reasoning"] = {"effort": "high"}
    if provider == "baseten" or (provider == "opencode" and name in ("kimi-k2-thinking", "glm-4.6")):
        options["chat_template_args"] = {"enable_thinking": True}
    if provider in ("zai", "zhipuai") and package == Npm.OPENAI_COMPATIBLE:
        options["thinking"] = {"type": "enabled", "clear_thinking": False}
    if provider in ("openai", "venice") or provider_options.get("setCacheKey"):
        options["promptCacheKey"] = session_id
    if package in _GOOGLE and model.capabilities.reasoning:
        options["thinkingConfig"] = {"includeThoughts": True, **({"thinkingLevel": "high"} if "gemini-3" in name else {})}
    if "gpt-5" in name and "gpt-5-chat" not in name:
        options |= _gpt5(model, session_id)
    return options


def _storage(model: Model) -> Options:
    """OpenAI need not store the conversation, because each request contains all of it."""
    is_openai = model.provider_id == "openai" or model.api.npm in (Npm.OPENAI, "@ai-sdk/github-copilot")
    return {"store": False} if is_openai else {}


def _gpt5(model: Model, session_id: str) -> Options:
    name, options = model.api.id, dict[str, Any]()
    if "gpt-5-pro" not in name:
        options["reasoningEffort"] = "medium"
    if gpt_version(name) > (5, 0) and "codex" not in name and model.provider_id != "azure":
        options["textVerbosity"] = "low"
    if model.provider_id.startswith("opencode"):
        options |= {"promptCacheKey": session_id, "include": ["reasoning.encrypted_content"], "reasoningSummary": "auto"}
    return options


def small_options(model: Model) -> Options:
    """The options for the least reasoning that the model accepts: models after gpt-5 reject `minimal`, models without reasoning
    reject any effort."""
    name, reasons = model.api.id, model.capabilities.reasoning
    if model.provider_id == "openai" or "gpt-5" in name:
        effort = {"reasoningEffort": "minimal" if "minimal" in openai_efforts(name) else "low"}
        return {**_storage(model), **(effort if reasons or "gpt-5" in name else {})}
    if model.api.npm in _GOOGLE and reasons:
        return {"thinkingConfig": {"thinkingLevel": "minimal"} if "gemini-3" in name else {"thinkingBudget": 0}}
    if model.api.npm == Npm.OPENROUTER and reasons:
        return {"reasoning": {"enabled": False}} if "google" in name else {"reasoningEffort": "minimal"}
    return {}


# Options in the form that adapters send.


_NOT_SENT = ("api_base", "base_url", "baseURL", "stream_options")
"""Never sent: a proxy may send the request to such an address, with a key of its own; and the usage is always requested."""


def renamed(options: Mapping[str, Any], names: Mapping[str, str], dropped: Collection[str] = ()) -> dict[str, Any]:
    """Options without an entry in `names` keep their name."""
    left_out = (*dropped, *_NOT_SENT)
    return {names.get(key, key): value for key, value in options.items() if key not in left_out and value is not None}


def present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def object_option(options: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """None if the option is not set. Raises UnusableOption."""
    value = options.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise UnusableOption(name, "an object", value)
