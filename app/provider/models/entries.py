"""What models.dev lists and `opencode.json` says of providers and models has one form: a raw entry. One is merged into the other,
and a model made of the result."""

from collections.abc import Mapping
from typing import Any

from app.config.parse import deep_merge
from app.provider import npm
from app.provider.models.variants import Variants, derive_variants
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
)

RawEntry = Mapping[str, Any]
"""A provider, or one of its models: listed, or validated of the configuration."""

LONG_CONTEXT = 200_000
"""The tokens of a prompt, including cached ones, above which `experimentalOver200K` is the price of all of it."""


def merge_entry(listed: RawEntry, said: RawEntry) -> dict[str, Any]:
    """What the configuration leaves open, by null too, is as it is listed."""
    return deep_merge(listed, {name: value for name, value in said.items() if value is not None})


def make_model(provider_id: str, model_id: str, entry: RawEntry, provider: RawEntry) -> Model:
    own, limit = entry.get("provider") or {}, entry.get("limit") or {}
    model = Model(
        id=model_id,
        provider_id=provider_id,
        api=ModelApi(
            id=entry.get("id") or model_id,
            url=own.get("api") or provider.get("api") or "",
            npm=own.get("npm") or provider.get("npm") or npm.OPENAI_COMPATIBLE,
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
    """Text alone where nothing is said."""
    named = (entry.get("modalities") or {}).get(side)
    return Modalities() if named is None else Modalities(**{name: name in named for name in Modalities.model_fields})


def _cost(said: RawEntry) -> ModelPrice:
    """`context_over_200k` is only of a configuration: models.dev has tiers, and OpenCode takes a single one for it."""
    over, listed = said.get("context_over_200k"), said.get("tiers") or []
    tiers = [] if over else [PriceTier(**_amounts(tier), tier=CostTier(size=tier["tier"]["size"])) for tier in listed]
    if len(tiers) == 1 and tiers[0].tier.size >= LONG_CONTEXT:
        over = listed[0]
    return ModelPrice(**_amounts(said), tiers=tiers or None, experimental_over_200k=Price(**_amounts(over)) if over else None)


def _amounts(said: RawEntry) -> dict[str, Any]:
    """Never below nothing: it would be a credit."""
    input_, output, read, write = (max(said.get(name) or 0, 0) for name in ("input", "output", "cache_read", "cache_write"))
    return {"input": input_, "output": output, "cache": CachePrice(read=read, write=write)}


def _variants(merged: Variants) -> Variants:
    """Without those that the configuration disables."""
    return {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }
