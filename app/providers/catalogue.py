"""The providers and models that come with the server: models.dev's data, with a date, in models.jsonl.

Its first line, with the providers, is read at the start; the line of each model when a directory uses its provider.
scripts/refresh_models.py makes the file anew. Providers and models have one form in this file and in `opencode.json`: a raw
entry. Entries are merged, and a model is made of the result.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from app.project.config.parse import deep_merge
from app.providers.base import Npm, Usage
from app.providers.options import Variants, derive_variants
from app.schema.model import (
    CachePrice,
    Capabilities,
    CostTier,
    InterleavedField,
    Modalities,
    Model,
    ModelApi,
    ModelLimit,
    ModelPrice,
    Price,
    PriceTier,
    ProviderInfo,
)
from app.schema.part import CacheTokens, Tokens

RawEntry = Mapping[str, Any]
"""A provider, or one of its models: from models.jsonl, or from a validated configuration."""

LONG_CONTEXT = 200_000
"""The tokens of a prompt, including cached ones, above which `experimentalOver200K` is the price of all of them."""


def merge_entry(listed: RawEntry, configured: RawEntry) -> dict[str, Any]:
    """The configuration's entry over the listed one; a key that it leaves out, or sets to null, stays as listed."""
    return deep_merge(listed, {name: value for name, value in configured.items() if value is not None})


def make_model(provider_id: str, model_id: str, entry: RawEntry, provider: RawEntry) -> Model:
    own, limit = entry.get("provider") or {}, entry.get("limit") or {}
    model = Model(
        id=model_id,
        provider_id=provider_id,
        api=ModelApi(
            id=entry.get("id") or model_id,
            url=own.get("api") or provider.get("api") or "",
            npm=own.get("npm") or provider.get("npm") or Npm.OPENAI_COMPATIBLE,
        ),
        name=entry.get("name") or model_id,
        family=entry.get("family"),
        capabilities=_capabilities(entry),
        cost=_cost(entry.get("cost") or {}),
        limit=ModelLimit(**{kind: int(limit[kind]) for kind in ModelLimit.model_fields if limit.get(kind) is not None}),
        status=entry.get("status") or "active",
        options=entry.get("options") or {},
        headers=entry.get("headers") or {},
        release_date=entry.get("release_date") or "",
    )
    model.variants = _variants(deep_merge(derive_variants(model, entry.get("reasoning_options")), entry.get("variants") or {}))
    return model


def _capabilities(entry: RawEntry) -> Capabilities:
    interleaved = entry.get("interleaved") or False
    return Capabilities(
        temperature=bool(entry.get("temperature")),
        reasoning=bool(entry.get("reasoning")),
        attachment=bool(entry.get("attachment")),
        toolcall=entry.get("tool_call") is not False,
        input=_media(entry, "input"),
        output=_media(entry, "output"),
        interleaved=InterleavedField(field=interleaved) if isinstance(interleaved, str) else interleaved,
    )


def _media(entry: RawEntry, side: str) -> Modalities:
    """Text alone if the entry names no media."""
    named = (entry.get("modalities") or {}).get(side)
    return Modalities() if named is None else Modalities(**{name: name in named for name in Modalities.model_fields})


def _cost(prices: RawEntry) -> ModelPrice:
    """Only configurations have `context_over_200k`, and it replaces the tiers. models.dev has tiers; a single tier from
    LONG_CONTEXT on is also shown as `experimentalOver200K`, as OpenCode does."""
    over, listed = prices.get("context_over_200k"), prices.get("tiers") or []
    tiers = [] if over else [PriceTier(**_amounts(tier), tier=CostTier(size=tier["tier"]["size"])) for tier in listed]
    if len(tiers) == 1 and tiers[0].tier.size >= LONG_CONTEXT:
        over = listed[0]
    return ModelPrice(**_amounts(prices), tiers=tiers or None, experimental_over_200k=Price(**_amounts(over)) if over else None)


def _amounts(prices: RawEntry) -> dict[str, Any]:
    """Negative prices count as 0: they would be a credit."""
    input_, output, read, write = (max(prices.get(name) or 0, 0) for name in ("input", "output", "cache_read", "cache_write"))
    return {"input": input_, "output": output, "cache": CachePrice(read=read, write=write)}


def _variants(merged: Variants) -> Variants:
    """Without variants that the configuration disables."""
    return {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }


# Listed providers and models.


MODELS_FILE = Path(__file__).with_name("models.jsonl")


class Catalogue:
    """`providers`: those that can be connected, without their models. One instance per process."""

    def __init__(self, file: Path = MODELS_FILE) -> None:
        self._file = file
        self._models: dict[str, dict[str, Model]] = {}
        with file.open("rb") as lines:
            self.providers: dict[str, RawEntry] = orjson.loads(next(lines))["providers"]

    def entries(self, provider_id: str) -> dict[str, RawEntry]:
        """The listed models by id; none of an unlisted provider."""
        if provider_id not in self.providers:
            return {}
        # Each line begins with its provider (scripts/refresh_models.py), so that other lines need no parsing.
        start = f'{{"of":"{provider_id}",'.encode()
        with self._file.open("rb") as lines:
            found = [orjson.loads(line) for line in lines if line.startswith(start)]
        return {entry["id"]: entry for entry in found}

    def models(self, provider_id: str) -> Mapping[str, Model]:
        """The entries made into models, which all directories share: the caller must not change them."""
        if provider_id in self.providers and provider_id not in self._models:
            provider, entries = self.providers[provider_id], self.entries(provider_id)
            self._models[provider_id] = {id_: make_model(provider_id, id_, entry, provider) for id_, entry in entries.items()}
        return self._models.get(provider_id, {})


def unconnected_provider_info(catalogue: Catalogue, provider_id: str) -> ProviderInfo:
    """A provider of the catalogue that is not connected, for clients."""
    provider = catalogue.providers[provider_id]
    return ProviderInfo(
        id=provider_id,
        name=provider["name"],
        source="custom",
        env=provider["env"],
        options=provider.get("options", {}),
        models={id_: model for id_, model in catalogue.models(provider_id).items() if model.status in ("active", "beta")},
    )


def scripted_info() -> ProviderInfo:
    """The provider of a server without keys, which answers by rules."""
    limit = {"context": 200_000, "output": 32_000}
    models = {
        id_: make_model("scripted", id_, {"name": name, "family": "scripted", "limit": limit}, {"npm": Npm.SCRIPTED})
        for id_, name in (("rules", "Rules"), ("title", "Titles"))
    }
    return ProviderInfo(id="scripted", name="Scripted (no language model)", source="custom", models=models)


# The cost of a step: tokens as they are stored, and dollars.


MAX_TOKENS = 1_000_000_000
"""The most tokens of a kind in one answer. No model takes as many, and a database adds up no more than 63 bits."""

_MILLION = Decimal(1_000_000)


def tokens_and_cost(usage: Usage, price: ModelPrice) -> tuple[Tokens, float]:
    """Dollars as a float. Charges reasoning on top of output, as OpenCode does, although `output` includes it."""
    tokens = Tokens(
        input=_count(usage.input),
        output=_count(usage.output),
        reasoning=_count(usage.reasoning),
        cache=CacheTokens(read=_count(usage.cache_read), write=_count(usage.cache_write)),
    )
    tier = _tier(tokens, price)
    charges = (
        (tokens.input, tier.input),
        (tokens.output, tier.output),
        (tokens.reasoning, tier.output),
        (tokens.cache.read, tier.cache.read),
        (tokens.cache.write, tier.cache.write),
    )
    charged = (count * Decimal(str(rate)) for count, rate in charges if count and rate)
    return tokens, float(sum(charged, Decimal(0)) / _MILLION)


def _count(value: float | None) -> int:
    """Counts NaN, null and negative numbers, which some providers report, as zero."""
    return min(max(int(value), 0), MAX_TOKENS) if value is not None and math.isfinite(value) else 0


def _tier(tokens: Tokens, price: ModelPrice) -> Price:
    """The highest tier that the prompt exceeds; without tiers, the price above 200k."""
    prompt = tokens.input + tokens.cache.read + tokens.cache.write
    if price.tiers:
        reached = [each for each in price.tiers if prompt > each.tier.size]
        return max(reached, key=lambda each: each.tier.size, default=price)
    return price.experimental_over_200k if prompt > LONG_CONTEXT and price.experimental_over_200k else price
