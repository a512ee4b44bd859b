"""The models that answer in a directory, and the providers that serve them. Secrets are masked."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from app.api.roles import READS
from app.api.v2.catalogue import ProviderRequest
from app.api.v2.errors import ForbiddenError, TaggedAnswer, TaggedError, described
from app.api.v2.shapes import Located, PlaceInstance, located, router
from app.provider.models.entries import LONG_CONTEXT
from app.provider.models.listing import config_providers
from app.schema.base import Wire
from app.schema.model import CachePrice, CostTier, Modalities, Model, ModelApi, ModelLimit, Price, ProviderInfo

routes = router("", ForbiddenError)


class ProviderNotFoundError(TaggedAnswer):
    status = 404
    tag: Literal["ProviderNotFoundError"] = "ProviderNotFoundError"
    provider_id: str


class ProviderAISDK(Wire):
    """`package` names the adapter as OpenCode's configuration does."""

    type: Literal["aisdk"] = "aisdk"
    package: str
    url: str | None = None
    settings: dict[str, Any] = {}


class ModelApiV2(ProviderAISDK):
    """`id` is the name that the provider's API knows."""

    id: str


class ProviderV2Info(Wire):
    """`integration_id`: what it is connected by."""

    id: str
    integration_id: Annotated[str | None, Field(alias="integrationID")] = None
    name: str
    api: ProviderAISDK
    request: ProviderRequest


class ModelCapabilities(Wire):
    tools: bool
    input: list[str]
    output: list[str]


class ModelVariant(ProviderRequest):
    id: str


class ModelRelease(Wire):
    """Epoch milliseconds, 0 where it is not known."""

    released: int


class ModelCost(Wire):
    """Dollars a million tokens, above `tier` tokens of context where there is one."""

    tier: CostTier | None = None
    input: float
    output: float
    cache: CachePrice


class ModelV2Info(Wire):
    id: str
    provider_id: str
    family: str | None = None
    name: str
    api: ModelApiV2
    capabilities: ModelCapabilities
    request: ProviderRequest
    variants: list[ModelVariant]
    time: ModelRelease
    cost: list[ModelCost]
    status: Literal["alpha", "beta", "deprecated", "active"]
    enabled: bool = True
    limit: ModelLimit


@routes.get("/model", tags=["model"], operation_id="v2.model.list", dependencies=READS)
async def models(instance: PlaceInstance) -> Located[list[ModelV2Info]]:
    providers = config_providers(instance.models.connected).providers
    found = [_model(provider, model) for provider in providers for model in provider.models.values()]
    return located(instance.location, found)


@routes.get("/provider", tags=["provider"], operation_id="v2.provider.list", dependencies=READS)
async def providers(instance: PlaceInstance) -> Located[list[ProviderV2Info]]:
    """Those that are connected."""
    return located(instance.location, list(map(_provider, config_providers(instance.models.connected).providers)))


@routes.get(
    "/provider/{providerID}",
    tags=["provider"],
    operation_id="v2.provider.get",
    responses=described(ProviderNotFoundError),
    dependencies=READS,
)
async def provider(instance: PlaceInstance, provider_id: Annotated[str, Path(alias="providerID")]) -> Located[ProviderV2Info]:
    for found in config_providers(instance.models.connected).providers:
        if found.id == provider_id:
            return located(instance.location, _provider(found))
    message = f"Provider not found: {provider_id}. A provider is there when it is connected."
    raise TaggedError(ProviderNotFoundError(message=message, provider_id=provider_id))


def _provider(info: ProviderInfo) -> ProviderV2Info:
    api = _api_of(info)
    return ProviderV2Info(
        id=info.id,
        integration_id=info.id if info.env else None,
        name=info.name,
        api=ProviderAISDK(package=api.npm, url=info.options.get("baseURL") or api.url or None, settings=info.options),
        request=ProviderRequest(headers=info.options.get("headers") or {}),
    )


def _api_of(info: ProviderInfo) -> ModelApi:
    """A connected provider has a model; they speak alike unless the configuration says otherwise."""
    return next(iter(info.models.values())).api


def _model(provider: ProviderInfo, model: Model) -> ModelV2Info:
    return ModelV2Info(
        id=model.id,
        provider_id=model.provider_id,
        family=model.family or None,
        name=model.name,
        api=ModelApiV2(
            id=model.api.id,
            package=model.api.npm,
            url=provider.options.get("baseURL") or model.api.url or None,
            settings=provider.options,
        ),
        capabilities=ModelCapabilities(
            tools=model.capabilities.toolcall,
            input=_kinds(model.capabilities.input),
            output=_kinds(model.capabilities.output),
        ),
        request=ProviderRequest(headers=model.headers, body=model.options),
        variants=[ModelVariant(id=name, body=body) for name, body in (model.variants or {}).items()],
        time=ModelRelease(released=_released(model.release_date)),
        cost=list(_costs(model)),
        status=model.status,
        limit=model.limit,
    )


def _kinds(modalities: Modalities) -> list[str]:
    return [kind for kind, has in modalities.wire().items() if has]


def _released(date: str) -> int:
    """Of `2025-09-29`, or a year and month alone."""
    day = f"{date}-01" if len(date) == len("2025-09") else date
    try:
        return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return 0


def _costs(model: Model) -> Iterator[ModelCost]:
    """None of a model that costs nothing, or nobody knows what."""
    if model.cost.input or model.cost.output:
        yield _cost(model.cost)
    yield from (_cost(each, each.tier) for each in model.cost.tiers or ())
    if model.cost.experimental_over_200k and not model.cost.tiers:
        yield _cost(model.cost.experimental_over_200k, CostTier(size=LONG_CONTEXT))


def _cost(price: Price, tier: CostTier | None = None) -> ModelCost:
    return ModelCost(tier=tier, input=price.input, output=price.output, cache=price.cache)
