"""The reasoning efforts a client can choose for a model: variant name → the options it adds to a call."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.provider import npm
from app.schema.model import Model

Variants = dict[str, dict[str, Any]]

_WITHOUT_EFFORT = re.compile(r"deepseek|minimax|glm|mistral")
_THREE = ("low", "medium", "high")
_SIX = ("none", "minimal", "low", "medium", "high", "xhigh")
_GOOGLE = (npm.GOOGLE, "@ai-sdk/google-vertex")
_CLAUDE_BUDGETS = {"high": 16_000, "max": 31_999}
_GEMINI_BUDGETS = {"high": 16_000, "max": 24_576}
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


def derive_variants(model: Model, stated: Sequence[Mapping[str, Any]] | None = None) -> Variants:
    """`stated`: the model's `reasoning_options` in models.dev. Where they name no efforts, these are guessed by the name, as
    OpenCode does; an empty list means that there are none."""
    if not model.capabilities.reasoning or stated == []:
        return {}
    name, package = model.id.lower(), model.api.npm
    named = next((option["values"] for option in stated or () if option["type"] == "effort"), None)
    efforts = _guessed(name, package) if named is None else [effort or "none" for effort in named]
    if efforts and package == npm.ANTHROPIC and claude_version(name) < (4, 6):
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
        case npm.ANTHROPIC:
            return (*_THREE, "max")
        case npm.GOOGLE | "@ai-sdk/google-vertex":
            return ("low", "high")
        case npm.OPENAI | "@ai-sdk/azure":
            return openai_efforts(name)
        case npm.OPENROUTER:
            return _SIX if "gpt" in name or "gemini-3" in name else ()
        case "@ai-sdk/gateway":
            return _SIX
        case "@ai-sdk/mistral" | "@ai-sdk/cohere" | "@ai-sdk/perplexity" | npm.SCRIPTED:
            return ()
        case _:
            return _THREE


def _options(package: str, effort: str) -> dict[str, Any]:
    """Claude decides a budget itself from 4.6 on, and from 4.7 on rejects one."""
    match package:
        case npm.ANTHROPIC:
            return {"thinking": {"type": "adaptive"}, "effort": effort}
        case npm.GOOGLE | "@ai-sdk/google-vertex":
            return {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": effort}}
        case npm.OPENAI | "@ai-sdk/azure":
            return {"reasoningEffort": effort, "reasoningSummary": "auto", "include": ["reasoning.encrypted_content"]}
        case npm.OPENROUTER:
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
