"""What a directory offers to its sessions: agents, commands, skills and references; its models, and the providers that serve
them. Secrets are masked."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from app.api.errors import described
from app.api.roles import READS
from app.api.v2.shapes import Located, LocationInfo, PlaceInstance, PlaceLocation, located, router
from app.providers.catalogue import LONG_CONTEXT
from app.providers.selection import config_providers, parse_model
from app.schema.base import Wire
from app.schema.errors import NotFound
from app.schema.model import (
    Agent,
    AgentMode,
    CachePrice,
    Command,
    CostTier,
    Modalities,
    Model,
    ModelLimit,
    Price,
    ProviderInfo,
    Skill,
)
from app.schema.part import ModelRef
from app.schema.permission import Action
from app.schema.session import SessionModel
from app.util.secrets import masked
from app.workspace.commands import all_commands

health_routes = router("", tags=["health"])
location_routes = router("", "ForbiddenError", tags=["location"])


class SecondApiHealth(Wire):
    healthy: Literal[True] = True


@health_routes.get("/health", operation_id="v2.health.get", dependencies=READS)
async def health() -> SecondApiHealth:
    """Needs a login, as in OpenCode; `GET /global/health` does not."""
    return SecondApiHealth()


@location_routes.get("/location", operation_id="v2.location.get", dependencies=READS)
async def get(here: PlaceLocation) -> LocationInfo:
    return LocationInfo.of(here)


routes = router("", "ForbiddenError")


class ProviderRequest(Wire):
    """Added to each request to the provider."""

    headers: dict[str, str] = {}
    body: dict[str, Any] = {}


class PermissionV2Rule(Wire):
    action: str
    resource: str
    effect: Action


class AgentV2Info(Wire):
    id: str
    model: SessionModel | None = None
    request: ProviderRequest
    system: str | None = None
    description: str | None = None
    mode: AgentMode
    hidden: bool
    color: str | None = None
    steps: int | None = None
    permissions: list[PermissionV2Rule]


class CommandV2Info(Wire):
    name: str
    template: str
    description: str | None = None
    agent: str | None = None
    model: SessionModel | None = None
    subtask: bool | None = None


class ReferenceLocalSource(Wire):
    type: Literal["local"] = "local"
    path: str


class ReferenceInfo(Wire):
    name: str
    path: str
    source: ReferenceLocalSource


@routes.get("/agent", tags=["agent"], operation_id="v2.agent.list", dependencies=READS)
async def agents(instance: PlaceInstance) -> Located[list[AgentV2Info]]:
    return located(instance.location, list(map(_agent, instance.agents.values())))


@routes.get("/command", tags=["command"], operation_id="v2.command.list", dependencies=READS)
async def commands(instance: PlaceInstance) -> Located[list[CommandV2Info]]:
    return located(instance.location, list(map(_command, await all_commands(instance))))


@routes.get("/skill", tags=["skill"], operation_id="v2.skill.list", dependencies=READS)
async def skills(instance: PlaceInstance) -> Located[list[Skill]]:
    return located(instance.location, list(instance.extensions.skills))


@routes.get("/reference", tags=["reference"], operation_id="v2.reference.list", dependencies=READS)
async def references(instance: PlaceInstance) -> Located[list[ReferenceInfo]]:
    """Always empty: the references of the configuration are not read."""
    return located(instance.location, [])


def _agent(agent: Agent) -> AgentV2Info:
    sampling = {"temperature": agent.temperature, "topP": agent.top_p}
    body = {name: value for name, value in sampling.items() if value is not None}
    rules = [PermissionV2Rule(action=rule.permission, resource=rule.pattern, effect=rule.action) for rule in agent.permission]
    other = {
        "id": agent.name,
        "model": _session_model(agent.model, agent.variant),
        "request": ProviderRequest(body=masked({**agent.options, **body})),
        "system": agent.prompt,
        "hidden": bool(agent.hidden),
        "permissions": rules,
    }
    return AgentV2Info.model_validate({**dict(agent), **other})


def _command(command: Command) -> CommandV2Info:
    model = _session_model(parse_model(command.model) if command.model else None, command.variant)
    return CommandV2Info.model_validate({**dict(command), "model": model})


def _session_model(model: ModelRef | None, variant: str | None) -> SessionModel | None:
    return SessionModel(id=model.model_id, provider_id=model.provider_id, variant=variant) if model else None


class ProviderNotFound(NotFound):
    tag = "ProviderNotFoundError"


class ProviderAISDK(Wire):
    """`package` names the adapter as OpenCode's configuration does."""

    type: Literal["aisdk"] = "aisdk"
    package: str
    url: str | None = None
    settings: dict[str, Any] = {}


class ModelApiV2(ProviderAISDK):
    """`id`: the model's name in the provider's API."""

    id: str


class ProviderV2Info(Wire):
    """`integration_id`: the integration that connects the provider."""

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
    """Epoch milliseconds, 0 if unknown."""

    released: int


class ModelCost(Wire):
    """Dollars a million tokens; with `tier`, above so many tokens of context."""

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
    found = [_model_info(provider, model) for provider in providers for model in provider.models.values()]
    return located(instance.location, found)


@routes.get("/provider", tags=["provider"], operation_id="v2.provider.list", dependencies=READS)
async def providers(instance: PlaceInstance) -> Located[list[ProviderV2Info]]:
    """The connected providers."""
    return located(instance.location, list(map(_provider, config_providers(instance.models.connected).providers)))


@routes.get(
    "/provider/{providerID}",
    tags=["provider"],
    operation_id="v2.provider.get",
    responses=described("ProviderNotFoundError"),
    dependencies=READS,
)
async def provider(instance: PlaceInstance, provider_id: Annotated[str, Path(alias="providerID")]) -> Located[ProviderV2Info]:
    for found in config_providers(instance.models.connected).providers:
        if found.id == provider_id:
            return located(instance.location, _provider(found))
    message = f"Provider not found: {provider_id}. A provider is there when it is connected."
    raise ProviderNotFound(message, providerID=provider_id)


def _provider(info: ProviderInfo) -> ProviderV2Info:
    api = next(iter(info.models.values())).api  # one that is connected has a model; all speak alike unless it is configured
    return ProviderV2Info(
        id=info.id,
        integration_id=info.id if info.env else None,
        name=info.name,
        api=ProviderAISDK(package=api.npm, url=info.options.get("baseURL") or api.url or None, settings=info.options),
        request=ProviderRequest(headers=info.options.get("headers") or {}),
    )


def _model_info(provider: ProviderInfo, model: Model) -> ModelV2Info:
    can, url = model.capabilities, provider.options.get("baseURL") or model.api.url or None
    other = {
        "family": model.family or None,
        "api": ModelApiV2(id=model.api.id, package=model.api.npm, url=url, settings=provider.options),
        "capabilities": ModelCapabilities(tools=can.toolcall, input=_kinds(can.input), output=_kinds(can.output)),
        "request": ProviderRequest(headers=model.headers, body=model.options),
        "variants": [ModelVariant(id=name, body=body) for name, body in (model.variants or {}).items()],
        "time": ModelRelease(released=_released(model.release_date)),
        "cost": list(_costs(model)),
    }
    return ModelV2Info.model_validate({**dict(model), **other})


def _kinds(modalities: Modalities) -> list[str]:
    return [kind for kind, has in modalities.wire().items() if has]


def _released(date: str) -> int:
    """The time of `2025-09-29`, or of a year and month alone."""
    day = f"{date}-01" if len(date) == len("2025-09") else date
    try:
        return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return 0


def _costs(model: Model) -> Iterator[ModelCost]:
    """Yields nothing for a model that costs nothing, or whose cost is unknown."""
    if model.cost.input or model.cost.output:
        yield _cost(model.cost)
    yield from (_cost(each, each.tier) for each in model.cost.tiers or ())
    if model.cost.experimental_over_200k and not model.cost.tiers:
        yield _cost(model.cost.experimental_over_200k, CostTier(size=LONG_CONTEXT))


def _cost(price: Price, tier: CostTier | None = None) -> ModelCost:
    return ModelCost(tier=tier, input=price.input, output=price.output, cache=price.cache)
