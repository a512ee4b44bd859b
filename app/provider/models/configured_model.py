"""Builds a model that `opencode.json` describes, based on the catalogue's entry."""

from collections.abc import Mapping
from typing import Any

from app.provider.models import known_providers as npm
from app.provider.models.known_providers import KnownProvider
from app.provider.models.merging import merge_layers
from app.schema.model import (
    CachePrice,
    Capabilities,
    InterleavedField,
    Modalities,
    Model,
    ModelApi,
    ModelLimit,
    ModelPrice,
    Price,
)

ConfigEntry = Mapping[str, Any]
"""One `provider.<id>` of `opencode.json`, or one model in it, already validated."""


def configured_model(
    provider_id: str, model_id: str, fields: ConfigEntry, entry: ConfigEntry, listed: Model | None, provider: KnownProvider | None
) -> Model:
    """The fields of the config, else those of the listed model, else the defaults.

    Unlike OpenCode, keeps the price tier over 200k tokens and `limit.input` of a listed model that the config mentions.
    """
    base = listed or _blank(provider_id, model_id)
    renamed = fields.get("id") not in (None, model_id)
    return Model(
        id=model_id,
        provider_id=provider_id,
        api=_api(fields, entry, listed, provider, model_id),
        name=fields.get("name") or (model_id if renamed else base.name),
        family=fields.get("family") or base.family or "",
        capabilities=_capabilities(fields, base.capabilities),
        cost=_cost(fields.get("cost"), base.cost),
        limit=base.limit.model_copy(update=_limits(fields)),
        status=fields.get("status") or base.status,
        options=merge_layers(base.options, fields.get("options")),
        headers=merge_layers(base.headers, fields.get("headers")),
        release_date=fields.get("release_date") or base.release_date,
    )


def _blank(provider_id: str, model_id: str) -> Model:
    return Model(id=model_id, provider_id=provider_id, api=ModelApi(id=model_id, npm=npm.OPENAI_COMPATIBLE), name=model_id)


def _api(
    fields: ConfigEntry, entry: ConfigEntry, listed: Model | None, provider: KnownProvider | None, model_id: str
) -> ModelApi:
    own = fields.get("provider") or {}
    own_npm = own.get("npm") or entry.get("npm")
    known_npm = listed.api.npm if listed else provider.npm if provider else npm.OPENAI_COMPATIBLE
    known_url = listed.api.url if listed else provider.url if provider else None
    return ModelApi(
        id=fields.get("id") or (listed.api.id if listed else model_id),
        url=own.get("api") or entry.get("api") or known_url or "",
        npm=own_npm or known_npm,
    )


def _capabilities(fields: ConfigEntry, base: Capabilities) -> Capabilities:
    given = {
        "temperature": fields.get("temperature"),
        "reasoning": fields.get("reasoning"),
        "attachment": fields.get("attachment"),
        "toolcall": fields.get("tool_call"),
        "interleaved": _interleaved(fields.get("interleaved")),
        **_media(fields.get("modalities") or {}),
    }
    return base.model_copy(update={key: value for key, value in given.items() if value is not None})


def _interleaved(given: bool | str | ConfigEntry | None) -> bool | InterleavedField | None:
    if isinstance(given, str):
        return InterleavedField(field=given)
    return InterleavedField.model_validate(given) if isinstance(given, Mapping) else given


def _media(modalities: ConfigEntry) -> dict[str, Modalities]:
    """`{"input": ["text", "image"]}` → the state of the five media; a direction that is not listed is left out."""
    names = Modalities.model_fields
    return {
        side: Modalities(**{name: name in modalities[side] for name in names})
        for side in ("input", "output")
        if side in modalities
    }


def _limits(fields: ConfigEntry) -> dict[str, int]:
    limit = fields.get("limit") or {}
    return {key: int(limit[key]) for key in ModelLimit.model_fields if limit.get(key) is not None}


def _cost(given: ConfigEntry | None, base: ModelPrice) -> ModelPrice:
    if not given:
        return base
    over = given.get("context_over_200k")
    tier = _price(over, base.experimental_over_200k or Price()) if over else base.experimental_over_200k
    price = _price(given, base)
    return ModelPrice(input=price.input, output=price.output, cache=price.cache, experimental_over_200k=tier)


def _price(given: ConfigEntry, base: Price) -> Price:
    """Never below nothing: it would be a credit."""
    return Price(
        input=max(given.get("input", base.input), 0),
        output=max(given.get("output", base.output), 0),
        cache=CachePrice(
            read=max(given.get("cache_read", base.cache.read), 0), write=max(given.get("cache_write", base.cache.write), 0)
        ),
    )
