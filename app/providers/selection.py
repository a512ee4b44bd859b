"""The model of a prompt: parses a name, looks it up, or chooses the default; and the lists that clients choose from."""

from collections.abc import Iterable, Mapping

from app.providers.catalogue import Catalogue, unconnected_provider_info
from app.providers.connected import ProviderSettings
from app.schema.base import Wire
from app.schema.errors import ServiceError
from app.schema.model import Model, ProviderAuthMethod, ProviderInfo
from app.schema.part import ModelRef
from app.util.secrets import MASK, all_masked, masked

Connected = Mapping[str, ProviderInfo]

_PREFERRED = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")
"""Name parts of preferred default models, in ascending order."""

_SMALL_MODELS = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
_SMALL_MODELS_OF = {
    "opencode": ("gpt-5-nano",),
    "github-copilot": ("gpt-5-mini", "claude-haiku-4.5", *_SMALL_MODELS),
    "scripted": ("title",),
}
_SIMILAR_ENOUGH = 55
"""Of 100, as rapidfuzz measures."""


class ProviderModelNotFoundError(ServiceError):
    status = 400
    name = "ProviderModelNotFoundError"

    def __init__(self, provider_id: str, model_id: str, suggestions: list[str]) -> None:
        format_hint = "" if model_id else "A model is named with its provider, `provider/model`. "
        did_you_mean = f"Did you mean {' or '.join(suggestions)}? " if suggestions else ""
        super().__init__(
            f"There is no model {provider_id}/{model_id}. {format_hint}{did_you_mean}"
            "GET /config/providers lists the models that can be used.",
            providerID=provider_id,
            modelID=model_id,
            suggestions=suggestions,
        )


class NoProviderError(ServiceError):
    status = 400
    name = "NoProviderError"
    text = "No provider is connected: set an API key, PUT one to /auth/{providerID}, or configure one in opencode.json."


def parse_model(name: str) -> ModelRef:
    """`openrouter/openai/gpt-5` → provider `openrouter`, model `openai/gpt-5`."""
    provider_id, _, model_id = name.partition("/")
    return ModelRef(provider_id=provider_id, model_id=model_id)


def find(connected: Connected, provider_id: str, model_id: str) -> Model:
    """Raises ProviderModelNotFoundError, with at most three similar models of the provider, or similar providers."""
    provider = connected.get(provider_id)
    if provider is None:
        raise ProviderModelNotFoundError(provider_id, model_id, _similar(provider_id, connected))
    if model_id not in provider.models:
        raise ProviderModelNotFoundError(provider_id, model_id, _similar(model_id, provider.models))
    return provider.models[model_id]


def _similar(name: str, choices: Iterable[str]) -> list[str]:
    from rapidfuzz import process  # loaded on first use

    return [choice for choice, _, _ in process.extract(name, list(choices), limit=3, score_cutoff=_SIMILAR_ENOUGH)]


def default_model(connected: Connected, configured: str | None = None, config_providers: Iterable[str] | None = None) -> ModelRef:
    """`configured`: config.model; `config_providers`: the ids of config.provider, None without that key."""
    if configured:
        return parse_model(configured)
    wanted = None if config_providers is None else set(config_providers)
    info = next((info for info in connected.values() if wanted is None or info.id in wanted), None)
    info = info or next(iter(connected.values()), None)
    if info is None:
        raise NoProviderError()
    return ModelRef(provider_id=info.id, model_id=best_model(info))


def best_model(info: ProviderInfo) -> str:
    """The id of the model that a client preselects."""
    return sort_models(info.models.values())[0].id


def sort_models(models: Iterable[Model]) -> list[Model]:
    def rank(model: Model) -> tuple[bool, int, bool]:
        is_for_titles = model.provider_id == "scripted" and model.id == "title"
        preference = next((rank for rank, name in enumerate(_PREFERRED) if name in model.id), -1)
        return is_for_titles, -preference, "latest" not in model.id

    return sorted(sorted(models, key=lambda model: model.id, reverse=True), key=rank)


def small_model(connected: Connected, provider_id: str, configured: str | None = None) -> Model | None:
    """The model for titles: the configured one, else a small one of the same provider or of OpenCode's; None if there is none."""
    if configured:
        ref = parse_model(configured)
        return find(connected, ref.provider_id, ref.model_id)
    found = _small_of(connected.get(provider_id), _SMALL_MODELS_OF.get(provider_id, _SMALL_MODELS))
    return found or _small_of(connected.get("opencode"), _SMALL_MODELS_OF["opencode"])


def _small_of(info: ProviderInfo | None, names: Iterable[str]) -> Model | None:
    models = info.models.values() if info else ()
    return next((model for name in names for model in models if name in model.id), None)


# The answers of GET /config/providers, GET /provider and GET /provider/auth; secrets are masked.


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
    offered = {id_: unconnected_provider_info(known, id_) for id_ in known.providers if settings.allows(id_)}
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
