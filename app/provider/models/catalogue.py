"""The models of the known providers, with the prices and context windows of the genai-prices package.

The package takes 13 to 20 MB and a tenth of a second, so it is imported for the first model list only: a server whose providers
are all described in `opencode.json` never imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Protocol

from app.provider.models import known_providers as npm
from app.provider.models.families import family_of
from app.provider.models.known_providers import KNOWN_PROVIDERS, KnownProvider
from app.schema.model import CachePrice, Model, ModelApi, ModelLimit, ModelPrice, Price, ProviderInfo
from app.util import clock

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import ModelPrice as Listed

LONG_CONTEXT_TIER = 300_000
"""OpenCode has one long-context tier, "over 200k"; those of providers start between 100k and 272k tokens. The highest tier below
this limit is used for it."""

_NOT_FOR_CHAT = re.compile(
    r"embed|tts|whisper|moderation|dall-e|image|audio|realtime|transcribe|rerank|\bocr\b|-live|voice|guard|voxtral|orpheus|robotics"
    r"|computer-use|instruct-0914|decider|nano-banana|omni|:batch$|^ft:|\.ft-|:extended$|-maas$"
    r"|^(ada|babbage|curie|davinci|text-davinci)|gpt-3\.5|^claude-(2|v1)|^claude-3-(5-sonnet|sonnet|haiku)$|^gemini-(1|pro|flash-1)"
)

_DATED = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class Known(Protocol):
    """The providers that can be connected. `models` may load the catalogue, `providers` does not."""

    @property
    def providers(self) -> Mapping[str, KnownProvider]: ...

    def models(self, provider_id: str) -> dict[str, Model]:
        """The listed models by id; empty for an unknown provider. The caller must not change them."""
        ...

    def listed_as(self, provider_id: str, model_id: str) -> str | None:
        """The listed id for a dated name or an alias: `claude-sonnet-4-5-20250929` → `claude-sonnet-4-5`."""
        ...


class KnownCatalogue:
    """Implements `Known` with the built-in table and genai-prices; one instance per process."""

    def __init__(self, providers: Mapping[str, KnownProvider] = KNOWN_PROVIDERS) -> None:
        self.providers = providers
        self._models: dict[str, dict[str, Model]] = {}

    def models(self, provider_id: str) -> dict[str, Model]:
        if provider_id not in self.providers:
            return {}
        if provider_id not in self._models:
            provider = self.providers[provider_id]
            self._models[provider_id] = {listed.id: _model(provider, listed) for listed in _chat_models(provider)}
        return self._models[provider_id]

    def listed_as(self, provider_id: str, model_id: str) -> str | None:
        if provider_id not in self.providers or not _DATED.search(model_id):
            return None
        return next((listed.id for listed in _chat_models(self.providers[provider_id]) if listed.is_match(model_id)), None)


def known_info(known: Known, provider: KnownProvider) -> ProviderInfo:
    """A known provider that is not connected, for clients."""
    return ProviderInfo(
        id=provider.id,
        name=provider.name,
        source="custom",
        env=list(provider.env),
        options=dict(provider.options),
        models={id_: model for id_, model in known.models(provider.id).items() if model.status in ("active", "beta")},
    )


def scripted_info() -> ProviderInfo:
    """The provider of a server without keys, which answers by rules."""
    return ProviderInfo(
        id="scripted",
        name="Scripted (no language model)",
        source="custom",
        models={
            "rules": _scripted_model("rules", "Rules"),
            "title": _scripted_model("title", "Titles"),
        },
    )


def _scripted_model(model_id: str, name: str) -> Model:
    return Model(
        id=model_id,
        provider_id="scripted",
        api=ModelApi(id=model_id, npm=npm.SCRIPTED),
        name=name,
        family="scripted",
        limit=ModelLimit(context=200_000, output=32_000),
    )


@cache
def _listed_by_provider() -> dict[str, list[ModelInfo]]:
    from genai_prices.data import providers

    return {provider.id: provider.models for provider in providers}


def _chat_models(provider: KnownProvider) -> list[ModelInfo]:
    listed = _listed_by_provider().get(provider.prices, [])
    return [model for model in listed if _can_chat(model) and (provider.only is None or re.search(provider.only, model.id))]


def _can_chat(listed: ModelInfo) -> bool:
    prices = vars(_prices_today(listed))
    return not _NOT_FOR_CHAT.search(listed.id.lower()) and "input_mtok" in prices and "output_mtok" in prices


def _model(provider: KnownProvider, listed: ModelInfo) -> Model:
    family = family_of(listed.id)
    context = listed.context_window or 0
    return Model(
        id=listed.id,
        provider_id=provider.id,
        api=ModelApi(id=listed.id, url=provider.url or "", npm=provider.npm),
        name=listed.name or listed.id,
        capabilities=family.capabilities(),
        cost=_cost(_prices_today(listed)),
        limit=ModelLimit(context=context, output=min(family.output, context) if context else family.output),
        status="deprecated" if listed.deprecated else "active",
    )


def _prices_today(listed: ModelInfo) -> Listed:
    return listed.get_prices(datetime.fromtimestamp(clock.now_ms() / 1000, UTC))


def _cost(prices: Listed) -> ModelPrice:
    base = _price(prices, at=0)
    dearer = _price(prices, at=LONG_CONTEXT_TIER)
    return ModelPrice(
        input=base.input, output=base.output, cache=base.cache, experimental_over_200k=dearer if dearer != base else None
    )


def _price(prices: Listed, at: int) -> Price:
    """The price of a request of `at` tokens."""
    return Price(
        input=_amount(prices, "input_mtok", at),
        output=_amount(prices, "output_mtok", at),
        cache=CachePrice(read=_amount(prices, "cache_read_mtok", at), write=_amount(prices, "cache_write_mtok", at)),
    )


def _amount(prices: Listed, kind: str, at: int) -> float:
    from genai_prices.types import TieredPrices

    price: Decimal | TieredPrices | None = vars(prices).get(kind)
    if isinstance(price, TieredPrices):
        return float(next((tier.price for tier in reversed(price.tiers) if at > tier.start), price.base))
    return float(price or 0)
