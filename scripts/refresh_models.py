"""The models that come with the server, from models.dev: `python scripts/refresh_models.py [api.json [DATE]]`.

Without a file it fetches models.dev's api.json as it is today; DATE says of when a file is. It writes
app/providers/models.jsonl: in the first line the date and the providers, then one model a line, each as models.dev has it
without what nobody here reads. Kept are the providers below, which need nothing but a key and speak as an adapter of ours does,
and of their models those that answer by text alone, and call tools or cost something (no embeddings, no moderation)."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SOURCE = "https://models.dev/api.json"
TARGET = Path(__file__).parent.parent / "app/providers/models.jsonl"

PROVIDERS = (
    *("anthropic", "openai", "google", "openrouter", "groq", "mistral", "deepseek", "xai", "cerebras", "moonshotai", "zai"),
    *("zai-coding-plan", "zhipuai", "minimax", "minimax-coding-plan", "kimi-code-plan-global", "togetherai", "fireworks-ai"),
    *("perplexity", "cohere", "novita-ai", "baseten", "ovhcloud", "opencode", "opencode-go", "alibaba", "deepinfra", "nvidia"),
    *("nebius", "ollama-cloud", "lmstudio", "siliconflow", "scaleway", "meta"),
)
ADDRESSES = {
    "anthropic": "https://api.anthropic.com/v1",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "xai": "https://api.x.ai/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "togetherai": "https://api.together.xyz/v1",
    "perplexity": "https://api.perplexity.ai",
    "cohere": "https://api.cohere.ai/compatibility/v1",
    "deepinfra": "https://api.deepinfra.com/v1/openai",
}
"""Where their packages go that models.dev has no address of; Google's and Cohere's are those that speak as OpenAI's API does."""
OPTIONS = {"anthropic": {"headers": {"anthropic-beta": "interleaved-thinking-2025-05-14"}}}
"""As OpenCode sets them."""

FIELDS = (
    *("id", "name", "family", "release_date", "status", "attachment", "reasoning", "temperature", "tool_call", "interleaved"),
    *("modalities", "limit", "provider"),
)
PRICES = ("input", "output", "cache_read", "cache_write", "tiers")
"""Not `context_over_200k`: models.dev makes it of the tiers."""


def main(source: str = "", date: str = "") -> None:
    found = json.loads(Path(source).read_text()) if source else fetched()
    date = date or datetime.now(UTC).date().isoformat()
    providers = {id_: provider(found[id_]) for id_ in PROVIDERS}
    lines = [{"date": date, "source": SOURCE, "providers": providers}, *models(found)]
    TARGET.write_text("".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines))


def fetched() -> Any:
    import httpx2

    return httpx2.get(SOURCE, follow_redirects=True).raise_for_status().json()


def provider(listed: dict[str, Any]) -> dict[str, Any]:
    id_ = listed["id"]
    options = {"options": OPTIONS[id_]} if id_ in OPTIONS else {}
    return {name: listed[name] for name in ("name", "env", "npm")} | {"api": listed.get("api") or ADDRESSES[id_]} | options


def models(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for id_ in PROVIDERS:
        for _, listed in sorted(found[id_]["models"].items()):
            if can_be_asked(listed):
                yield {"of": id_} | model(listed)


def can_be_asked(listed: dict[str, Any]) -> bool:
    """Models of Google's own form that another provider has are left out: no adapter speaks it."""
    answers = listed["modalities"]["output"] == ["text"] and (listed["tool_call"] or listed.get("cost", {}).get("output"))
    return bool(answers) and listed.get("provider", {}).get("npm") != "@ai-sdk/google"


def model(listed: dict[str, Any]) -> dict[str, Any]:
    kept = {name: listed[name] for name in FIELDS if listed.get(name)} | {"tool_call": listed["tool_call"]}
    if listed["reasoning"] and "reasoning_options" in listed:
        kept["reasoning_options"] = listed["reasoning_options"]
    prices = {name: price for name, price in listed.get("cost", {}).items() if name in PRICES}
    return kept | ({"cost": prices} if prices else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
