"""The answers of GET /config/providers, GET /provider and GET /provider/auth; secrets are masked."""

from app.provider.models.assembly import ProviderSettings
from app.provider.models.catalogue import Catalogue, known_info
from app.provider.models.selection import Connected, best_model
from app.schema.base import Wire
from app.schema.model import Model, ProviderAuthMethod, ProviderInfo
from app.util.secrets import MASK, all_masked, masked


class ConnectedProviders(Wire):
    """`default` is the model that a client preselects, by provider."""

    providers: list[ProviderInfo]
    default: dict[str, str]


class ProviderList(Wire):
    all: list[ProviderInfo]
    default: dict[str, str]
    connected: list[str]


def config_providers(connected: Connected) -> ConnectedProviders:
    return ConnectedProviders(providers=[_masked(info) for info in connected.values()], default=_defaults(connected))


def provider_list(known: Catalogue, connected: Connected, settings: ProviderSettings) -> ProviderList:
    """All providers that can be connected. Loads the models of all known providers."""
    offered = {id_: known_info(known, id_) for id_ in known.providers if settings.allows(id_)}
    merged = {**offered, **connected}
    return ProviderList(all=[_masked(info) for info in merged.values()], default=_defaults(merged), connected=list(connected))


def auth_methods(known: Catalogue) -> dict[str, list[ProviderAuthMethod]]:
    return {provider_id: [ProviderAuthMethod(type="api", label="API key")] for provider_id in known.providers}


def _defaults(infos: Connected) -> dict[str, str]:
    return {info.id: best_model(info) for info in infos.values() if info.models}


def _masked(info: ProviderInfo) -> ProviderInfo:
    return info.model_copy(
        update={
            "key": MASK if info.key else None,
            "options": masked(info.options),
            "models": {model_id: _masked_model(model) for model_id, model in info.models.items()},
        }
    )


def _masked_model(model: Model) -> Model:
    shown = {
        "api": model.api.model_copy(update={"url": masked(model.api.url)}),
        "headers": all_masked(model.headers),
        "options": masked(model.options),
        "variants": masked(model.variants),
    }
    return model.model_copy(update=shown)
