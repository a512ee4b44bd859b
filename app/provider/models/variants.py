"""The reasoning efforts a client can choose for a model: variant name → the options it adds to a call."""

import re
from typing import Any

from app.provider import npm
from app.schema.model import Model

Variants = dict[str, dict[str, Any]]

_WITHOUT_EFFORT = re.compile(r"deepseek|minimax|glm|mistral")
_THREE = ("low", "medium", "high")
_SIX = ("none", "minimal", "low", "medium", "high", "xhigh")
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


def derive_variants(model: Model) -> Variants:
    name = model.id.lower()
    if not model.capabilities.reasoning or _WITHOUT_EFFORT.search(name):
        return {}
    if "grok" in name:
        return _efforts(("low", "high")) if "grok-3-mini" in name else {}
    match model.api.npm:
        case npm.ANTHROPIC:
            return _anthropic(name)
        case npm.GOOGLE | "@ai-sdk/google-vertex":
            return _google(name)
        case npm.OPENAI | "@ai-sdk/azure":
            return {effort: _openai(effort) for effort in openai_efforts(name)}
        case npm.OPENROUTER:
            return {effort: {"reasoning": {"effort": effort}} for effort in _SIX}
        case "@ai-sdk/gateway":
            return _efforts(_SIX)
        case "@ai-sdk/mistral" | "@ai-sdk/cohere" | "@ai-sdk/perplexity" | npm.SCRIPTED:
            return {}
        case _:
            return _efforts(_THREE)


def _efforts(names: tuple[str, ...]) -> Variants:
    return {name: {"reasoningEffort": name} for name in names}


def _anthropic(name: str) -> Variants:
    """Models from 4.6 on accept an effort and decide the budget themselves; models from 4.7 on reject a budget."""
    if claude_version(name) >= (4, 6):
        return {effort: {"thinking": {"type": "adaptive"}, "effort": effort} for effort in (*_THREE, "max")}
    return {key: {"thinking": {"type": "enabled", "budgetTokens": budget}} for key, budget in (("high", 16_000), ("max", 31_999))}


def _google(name: str) -> Variants:
    if "2.5" in name:
        budgets = {"high": 16_000, "max": 24_576}
        return {key: {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": budget}} for key, budget in budgets.items()}
    return {level: {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": level}} for level in ("low", "high")}


def _openai(effort: str) -> dict[str, Any]:
    return {"reasoningEffort": effort, "reasoningSummary": "auto", "include": ["reasoning.encrypted_content"]}


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
