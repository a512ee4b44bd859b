"""The connected providers of a workspace, from the catalogue, the environment, stored keys and `opencode.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from app.config.loader import LoadedConfig
from app.config.merge import deep_merge, difference
from app.provider.models.catalogue import Known, scripted_info
from app.provider.models.configured_model import ConfigEntry, configured_model
from app.provider.models.merging import merge_layers
from app.provider.models.ownership import KeyHolders, entries_for, is_offered
from app.provider.models.variants import derive_variants
from app.schema.config import Config
from app.schema.model import ApiAuth, Auth, Model, ProviderInfo
from app.util.environment import is_servers_own

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
    operators: "ProviderSettings | None" = None
    """By the operator's layers alone, where projects are not trusted."""
    projects: Mapping[str, ConfigEntry] = field(default_factory=dict)
    """The entries of the project's layers there."""

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

    @classmethod
    def of_loaded(cls, loaded: LoadedConfig, config: Config) -> "ProviderSettings":
        """`config`: the loaded one as the operator's plugins left it."""
        merged = cls.of(config.layer(), loaded.environ)
        if loaded.split is None:
            return merged
        changed = difference(config.layer(), loaded.config.layer())
        operators = cls.of(deep_merge(loaded.split.operators, changed), loaded.environ)
        return replace(merged, operators=operators, projects=loaded.split.projects.get("provider") or {})

    def for_keys(self, keys: KeyHolders, known: Known) -> "ProviderSettings":
        """As they hold for the user who has these keys."""
        operators = (self.operators or self).entries
        return replace(self, entries=entries_for(keys, known, operators, self.projects))

    def allows(self, provider_id: str) -> bool:
        effects = [policy["effect"] for policy in self.policies if fnmatchcase(provider_id, policy["resource"])]
        is_denied = provider_id in self.disabled or (effects and effects[-1] == "deny")
        is_enabled = self.enabled is None or provider_id in self.enabled
        return is_enabled and not is_denied and (self.operators is None or self.operators.allows(provider_id))


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


def api_keys(auth: Mapping[str, Auth]) -> dict[str, ApiAuth]:
    return {provider_id: stored for provider_id, stored in auth.items() if isinstance(stored, ApiAuth)}


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """What the server has for a user: the variables that name keys, and the key store."""

    env: Mapping[str, str]
    auth: Mapping[str, Auth]

    def providers(self, known: Known, settings: ProviderSettings) -> set[str]:
        """Those that it has a key of. `settings`: the operator's."""
        named = {id_ for id_ in {**known.providers, **settings.entries} if _env_key(_env_names(known, settings, id_), self.env)}
        return named | api_keys(self.auth).keys()


def connect(
    known: Known, settings: ProviderSettings, server: ServerKeys, own: Mapping[str, Auth] | None = None, *, shares: bool = True
) -> dict[str, ProviderInfo]:
    """The connected providers of a user with the keys `own`, by default the operator. `shares`: they may use the keys that the
    configuration has; `server` has those of the server that they may use."""
    own = api_keys(own or {})  # nothing else is a key: with it the server's would go where the project says
    keys = KeyHolders(own.keys(), server.providers(known, settings.operators or settings), shares)
    return assemble(known, settings.for_keys(keys, known), server.env, {**server.auth, **own})


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
    wanted = names if names is not None else provider.env if provider else ()
    return [name for name in wanted if not is_servers_own(name)]


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
    return is_offered(model_id, entry)


def _with_variants(model: Model, fields: ConfigEntry) -> Model:
    merged = merge_layers(model.variants or derive_variants(model), fields.get("variants"))
    variants = {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }
    return model.model_copy(update={"variants": variants})
