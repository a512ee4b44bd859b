"""The connected providers of a workspace, from the catalogue, the environment, stored keys and `opencode.json`.

A project may be written by others than the operator. So what says how a provider is reached (address, headers, options) is,

- if the user has a key of their own for it: the operator's and the project's layers together, without the operator's secrets;
- else, if the operator's layers name it or the server has a key for it: the operator's layers alone. The project may only
  describe and rename its models;
- else the project's layers.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from app.project.config.loader import LoadedConfig
from app.project.config.parse import deep_merge, difference
from app.providers.catalogue import Catalogue, RawEntry, make_model, merge_entry, scripted_info
from app.schema.config import Config
from app.schema.model import ApiAuth, Auth, Model, ProviderInfo
from app.util.data_files import PrivateFileStamp, PrivateJson
from app.util.environment import is_servers_own
from app.util.secrets import masked, secrets_of, without_secrets

# Stored credentials.


_AUTH: TypeAdapter[Auth] = TypeAdapter(Auth)


class AuthStore:
    """Reads the file again after another process has replaced it. Skips invalid entries, but keeps them in the file."""

    def __init__(self, data_dir: Path) -> None:
        self._file = PrivateJson(data_dir / "auth.json")
        self._stamp: PrivateFileStamp | None = None
        self._entries: dict[str, Auth] = {}

    def all(self) -> dict[str, Auth]:
        stamp = self._file.stamp()
        if stamp != self._stamp:
            entries: dict[str, Auth] = {}
            for provider_id, entry in self._file.read().items():
                with suppress(ValidationError):
                    entries[provider_id] = _AUTH.validate_python(entry)
            self._entries, self._stamp = entries, stamp
        return dict(self._entries)

    def get(self, provider_id: str) -> Auth | None:
        return self.all().get(provider_id)

    def set(self, provider_id: str, auth: Auth) -> None:
        entry = _AUTH.dump_python(auth, mode="json", by_alias=True, exclude_none=True)
        with self._file.updating() as content:
            content[provider_id] = entry

    def remove(self, provider_id: str) -> None:
        with self._file.updating() as content:
            content.pop(provider_id, None)


def key_variables(connected: Iterable[ProviderInfo], environ: Mapping[str, str]) -> set[str]:
    """The environment variables with a provider's key: those that it reads, and those whose value is one of its secrets."""
    infos = list(connected)
    named = {name for info in infos for name in info.env}
    secrets = {secret for info in infos for secret in secrets_of({"key": info.key, "options": info.options, "headers": {}})}
    secrets |= {secret for info in infos for model in info.models.values() for secret in secrets_of(model.headers, headers=True)}
    return named | {name for name, value in environ.items() if value in secrets}


# Which layers count.


Entries = Mapping[str, RawEntry]

_DESCRIPTIVE_KEYS = (
    *("name", "family", "release_date", "limit", "modalities"),
    *("attachment", "reasoning", "temperature", "tool_call", "interleaved"),
)
"""The keys that a project may set for a model of the operator's: neither where and how the model is called, nor its price."""
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")


def entries_for(
    of_user: Collection[str],
    of_server: Collection[str],
    catalogue: Catalogue,
    operators: Entries,
    projects: Entries,
    *,
    shares_server_keys: bool,
) -> dict[str, RawEntry]:
    """The entries of `provider` that hold for a user. `of_user`: the providers for which the user has a key, `of_server`: those
    for which the server has one that the user may use. `shares_server_keys`: the user may use the keys in the configuration, too.
    `operators` and `projects`: the entries of their layers."""
    found: dict[str, RawEntry] = {}
    for id_ in [*operators, *(id_ for id_ in projects if id_ not in operators)]:
        operator, project = operators.get(id_, {}), projects.get(id_, {})
        if id_ in of_user:
            found[id_] = deep_merge(without_secrets(operator), _without_key(project))
            continue
        is_operators = id_ in operators or id_ in of_server
        entry = _with_descriptions(operator, project, catalogue, id_) if is_operators else project
        if shares_server_keys or masked(entry) == entry:
            found[id_] = entry
    return found


def _without_key(entry: RawEntry) -> RawEntry:
    """For a provider of which the user has a key, which replaces the entry's."""
    options = {name: value for name, value in entry.get("options", {}).items() if name != "apiKey"}
    if "headers" in options:
        options["headers"] = {name: value for name, value in options["headers"].items() if name.lower() not in _KEY_HEADERS}
    return {**entry, "options": options}


def _with_descriptions(operator: RawEntry, project: RawEntry, catalogue: Catalogue, provider_id: str) -> RawEntry:
    """The operator's entry, with the project's descriptions and names of its models."""
    described: Entries = project.get("models") or {}
    if not described:
        return operator
    configured: Entries = operator.get("models") or {}
    existing = {*configured, *catalogue.entries(provider_id)}
    models = {**configured}
    for model_id, fields in described.items():
        existing_id = model_id if model_id in existing else fields.get("id", "")
        if existing_id in existing and is_offered(existing_id, operator):
            description = {name: fields[name] for name in _DESCRIPTIVE_KEYS if name in fields}
            models[model_id] = {"id": existing_id, **configured.get(existing_id, {}), **description}
    return {**operator, "models": models}


def is_offered(model_id: str, entry: RawEntry) -> bool:
    whitelist = entry.get("whitelist")
    return model_id not in (entry.get("blacklist") or ()) and (not whitelist or model_id in whitelist)


# The connected providers.


Source = Literal["env", "api", "config"]

_TRUE = ("1", "true")
_WITHOUT_TOOLS = {"gpt-5-chat-latest", "openai/gpt-5-chat"}
"""Listed models that do not support tools."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The settings of providers in `opencode.json` and the flags. `enabled` is None for all."""

    entries: Mapping[str, RawEntry] = field(default_factory=dict)
    enabled: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    policies: Sequence[Mapping[str, str]] = ()
    """The last policy whose `resource` matches a provider's id says by its `effect` whether the provider may be used."""
    alpha_models: bool = False
    scripted: bool = False
    """Offers the scripted provider beside others, because a script file is given."""
    operators: "ProviderSettings | None" = None
    """From the operator's layers alone, if projects are not trusted."""
    projects: Mapping[str, RawEntry] = field(default_factory=dict)
    """The entries of the project's layers, if projects are not trusted."""

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
        operators = cls.of(deep_merge(loaded.split.of_operator, changed), loaded.environ)
        return replace(merged, operators=operators, projects=loaded.split.of_project.get("provider") or {})

    def allows(self, provider_id: str) -> bool:
        effects = [policy["effect"] for policy in self.policies if fnmatchcase(provider_id, policy["resource"])]
        is_denied = provider_id in self.disabled or (effects and effects[-1] == "deny")
        is_enabled = self.enabled is None or provider_id in self.enabled
        return is_enabled and not is_denied and (self.operators is None or self.operators.allows(provider_id))


def assemble(
    catalogue: Catalogue, settings: ProviderSettings, env: Mapping[str, str], auth: Mapping[str, Auth]
) -> dict[str, ProviderInfo]:
    """The connected providers in OpenCode's order: by environment, then by stored key, then by config. If a provider is found in
    several places, the first decides its position and the last is its source.

    The key is the stored one, else that of the first variable that is set. Loads the models of connected providers only.
    """
    entries = {id_: entry for id_, entry in _entries(catalogue, settings).items() if settings.allows(id_)}
    stored = api_keys(auth)
    sources: dict[str, Source] = {id_: "env" for id_, entry in entries.items() if _env_key(entry, env)}
    sources |= {id_: "api" for id_ in entries if id_ in stored}
    sources |= {id_: "config" for id_ in settings.entries if id_ in entries}
    connected: dict[str, ProviderInfo] = {}
    for id_, source in sources.items():
        entry = entries[id_]
        key = stored[id_].key if id_ in stored else _env_key(entry, env)
        if models := _models(catalogue, settings, id_, entry):
            connected[id_] = ProviderInfo(
                id=id_,
                name=entry.get("name") or id_,
                source=source,
                env=_env_names(entry),
                key=key,
                options=entry.get("options", {}),
                models=models,
            )
    if settings.allows("scripted") and (settings.scripted or not connected):
        connected.setdefault("scripted", scripted_info())
    return connected


def api_keys(auth: Mapping[str, Auth]) -> dict[str, ApiAuth]:
    return {provider_id: stored for provider_id, stored in auth.items() if isinstance(stored, ApiAuth)}


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The server's keys for a user: the variables that name keys, and the key store."""

    env: Mapping[str, str]
    auth: Mapping[str, Auth]

    def providers(self, catalogue: Catalogue, settings: ProviderSettings) -> set[str]:
        """The providers of which the server has a key. `settings`: the operator's."""
        named = {id_ for id_, entry in _entries(catalogue, settings).items() if _env_key(entry, self.env)}
        return named | api_keys(self.auth).keys()


def connect(
    catalogue: Catalogue,
    settings: ProviderSettings,
    server: ServerKeys,
    own: Mapping[str, Auth] | None = None,
    *,
    shares_server_keys: bool = True,
) -> dict[str, ProviderInfo]:
    """The connected providers of a user with the keys `own`, by default the operator. `server`: the server's keys that the user
    may use. `shares_server_keys`: the user may use the configuration's keys, too."""
    own = api_keys(own or {})  # nothing else is a key: with it the server's key would go where the project says
    operators = settings.operators or settings
    of_server = server.providers(catalogue, operators)
    layers = operators.entries, settings.projects
    entries = entries_for(own.keys(), of_server, catalogue, *layers, shares_server_keys=shares_server_keys)
    return assemble(catalogue, replace(settings, entries=entries), server.env, {**server.auth, **own})


def _entries(catalogue: Catalogue, settings: ProviderSettings) -> dict[str, RawEntry]:
    """The entries of all providers, those of the catalogue first."""
    listed = catalogue.providers
    return {**listed, **{id_: merge_entry(listed.get(id_, {}), entry) for id_, entry in settings.entries.items()}}


def _env_names(entry: RawEntry) -> list[str]:
    return [name for name in entry.get("env", ()) if not is_servers_own(name)]


def _env_key(entry: RawEntry, env: Mapping[str, str]) -> str | None:
    return next((env[name] for name in _env_names(entry) if env.get(name)), None)


def _models(catalogue: Catalogue, settings: ProviderSettings, provider_id: str, entry: RawEntry) -> dict[str, Model]:
    """Each configured model is merged over the listed one that its `id` names, by default the one of its own name."""
    models = {**catalogue.models(provider_id)}
    configured: Mapping[str, RawEntry] = entry.get("models") or {}
    listed = catalogue.entries(provider_id) if configured else {}
    for model_id, fields in configured.items():
        listed_id: str = fields.get("id") or model_id
        name = {} if listed_id == model_id else {"name": model_id}
        merged = merge_entry({"family": "", **listed.get(listed_id, {}), **name}, fields)
        models[model_id] = make_model(provider_id, model_id, merged, entry)
    left_out = {"deprecated"} if settings.alpha_models else {"deprecated", "alpha"}
    return {
        id_: model
        for id_, model in models.items()
        if model.id not in _WITHOUT_TOOLS and model.status not in left_out and is_offered(id_, entry)
    }
