"""The connected providers of a workspace, from the catalogue, the environment, stored keys and `opencode.json`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from app.config.masking import without_masked
from app.provider.models.catalogue import Known, scripted_info
from app.provider.models.configured_model import ConfigEntry, configured_model
from app.provider.models.merging import merge_layers
from app.provider.models.variants import derive_variants
from app.schema.model import ApiAuth, Auth, Model, ProviderInfo
from app.util.dataclass import dataclass
from app.util.secrets import masked

_TRUE = ("1", "true")
_WITHDRAWN = {"gpt-5-chat-latest", "openai/gpt-5-chat"}
"""Listed models that do not support tools."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The settings of providers in `opencode.json` and the flags. `enabled` is None for all."""

    entries: Mapping[str, ConfigEntry] = field(default_factory=dict)
    enabled: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    policies: Sequence[Mapping[str, str]] = ()
    """The last whose `resource` matches a provider's id says by its `effect` whether it may be used."""
    alpha_models: bool = False
    scripted: bool = False
    """Offers the scripted provider beside others, because a script file is given."""

    @classmethod
    def of(cls, config: Mapping[str, Any], env: Mapping[str, str]) -> "ProviderSettings":
        enabled = config.get("enabled_providers")
        return cls(
            entries=config.get("provider") or {},
            enabled=None if enabled is None else frozenset(enabled),
            disabled=frozenset(config.get("disabled_providers") or ()),
            policies=(config.get("experimental") or {}).get("policies") or (),
            alpha_models=env.get("OPENCODE_ENABLE_EXPERIMENTAL_MODELS", "").lower() in _TRUE,
            scripted=bool(env.get("OPENSESSION_SCRIPT")),
        )

    def with_own_keys(self, own: Collection[str], *, shares_server_keys: bool) -> "ProviderSettings":
        """For a user with keys of the providers `own`: the configuration's give way to those, and without sharing a provider that
        only the configuration has a key of is not there."""
        entries = {
            provider_id: _without_secrets(entry) if provider_id in own else entry
            for provider_id, entry in self.entries.items()
            if shares_server_keys or provider_id in own or not _has_secrets(entry)
        }
        return replace(self, entries=entries)

    def allows(self, provider_id: str) -> bool:
        effects = [policy["effect"] for policy in self.policies if fnmatchcase(provider_id, policy["resource"])]
        is_denied = provider_id in self.disabled or (effects and effects[-1] == "deny")
        return not is_denied and (self.enabled is None or provider_id in self.enabled)


def _has_secrets(entry: ConfigEntry) -> bool:
    return bool(masked(entry) != entry)


def _without_secrets(entry: ConfigEntry) -> ConfigEntry:
    return without_masked(masked(entry))


def assemble(
    known: Known, settings: ProviderSettings, env: Mapping[str, str], auth: Mapping[str, Auth]
) -> dict[str, ProviderInfo]:
    """The connected providers in OpenCode's order: by environment, then by stored key, then by config.

    The key is the stored one, else that of the first variable that is set. Loads the models of connected providers only.
    """
    sources = _sources(known, settings, env, auth)
    built = (_connect(known, settings, provider_id, source, env, auth) for provider_id, source in sources.items())
    connected = {info.id: info for info in built if info.models}
    if settings.allows("scripted") and (settings.scripted or not connected):
        connected.setdefault("scripted", scripted_info())
    return connected


Source = Literal["env", "api", "config"]


def _sources(known: Known, settings: ProviderSettings, env: Mapping[str, str], auth: Mapping[str, Auth]) -> dict[str, Source]:
    """The source of each provider: the last one found. The first one found decides the order."""
    database = [*known.providers, *(id_ for id_ in settings.entries if id_ not in known.providers)]
    allowed = [id_ for id_ in database if settings.allows(id_)]
    found: dict[str, Source] = {}
    found |= {id_: "env" for id_ in allowed if _env_key(_env_names(known, settings, id_), env)}
    found |= {id_: "api" for id_ in allowed if isinstance(auth.get(id_), ApiAuth)}
    found |= {id_: "config" for id_ in settings.entries if settings.allows(id_)}
    return found


def _env_names(known: Known, settings: ProviderSettings, provider_id: str) -> list[str]:
    names = settings.entries.get(provider_id, {}).get("env")
    provider = known.providers.get(provider_id)
    return list(names if names is not None else provider.env if provider else ())


def _env_key(names: list[str], env: Mapping[str, str]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


def _connect(
    known: Known,
    settings: ProviderSettings,
    provider_id: str,
    source: Source,
    env: Mapping[str, str],
    auth: Mapping[str, Auth],
) -> ProviderInfo:
    entry = settings.entries.get(provider_id, {})
    provider = known.providers.get(provider_id)
    names = _env_names(known, settings, provider_id)
    stored = auth.get(provider_id)
    return ProviderInfo(
        id=provider_id,
        name=entry.get("name") or (provider.name if provider else provider_id),
        source=source,
        env=names,
        key=stored.key if isinstance(stored, ApiAuth) else _env_key(names, env),
        options=merge_layers(provider.options if provider else None, entry.get("options")),
        models=_models(known, settings, provider_id, entry),
    )


def _models(known: Known, settings: ProviderSettings, provider_id: str, entry: ConfigEntry) -> dict[str, Model]:
    listed = known.models(provider_id)
    provider = known.providers.get(provider_id)
    configured: Mapping[str, ConfigEntry] = entry.get("models") or {}
    models = listed | {
        model_id: configured_model(provider_id, model_id, fields, entry, listed.get(fields.get("id") or model_id), provider)
        for model_id, fields in configured.items()
    }
    return {
        model_id: _with_variants(model, configured.get(model_id, {}))
        for model_id, model in models.items()
        if _kept(model_id, model, entry, settings)
    }


def _kept(model_id: str, model: Model, entry: ConfigEntry, settings: ProviderSettings) -> bool:
    if model_id in _WITHDRAWN or model.status == "deprecated" or (model.status == "alpha" and not settings.alpha_models):
        return False
    whitelist = entry.get("whitelist")
    return model_id not in (entry.get("blacklist") or ()) and (not whitelist or model_id in whitelist)


def _with_variants(model: Model, fields: ConfigEntry) -> Model:
    merged = merge_layers(model.variants or derive_variants(model), fields.get("variants"))
    variants = {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }
    return model.model_copy(update={"variants": variants})
