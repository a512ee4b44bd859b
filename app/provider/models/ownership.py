"""Whose word counts for a provider, where projects are written by others than who runs the server.

With a key of the user's own the operator's layers and the project's say together how a provider is reached, without the
operator's secrets. Else a provider that the operator's layers name, or that the server has a key of, is as the operator says: the
project's may describe its models and give them other names, nothing more. Any other provider is the project's own.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from app.config.parse import deep_merge
from app.provider.models.catalogue import Catalogue
from app.provider.models.entries import RawEntry
from app.util.secrets import masked, without_secrets

Entries = Mapping[str, RawEntry]

_DESCRIBING = (
    *("name", "family", "release_date", "limit", "modalities"),
    *("attachment", "reasoning", "temperature", "tool_call", "interleaved"),
)
"""What a project may say of a model of the operator's: not where and how it is called, nor what it costs."""
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class KeyHolders:
    """The providers that the user has a key of, and those that the server has one of for them. `shares`: they may use those that
    the configuration has, too."""

    user: Collection[str]
    server: Collection[str]
    shares: bool


def entries_for(keys: KeyHolders, known: Catalogue, operators: Entries, projects: Entries) -> dict[str, RawEntry]:
    """The entries of `provider` as they hold for a user. `operators` and `projects`: what their layers have."""
    found: dict[str, RawEntry] = {}
    for id_ in [*operators, *(id_ for id_ in projects if id_ not in operators)]:
        operator, project = operators.get(id_, {}), projects.get(id_, {})
        if id_ in keys.user:
            found[id_] = deep_merge(without_secrets(operator), _without_key(project))
            continue
        is_operators = id_ in operators or id_ in keys.server
        entry = _with_names(operator, project, known, id_) if is_operators else project
        if keys.shares or masked(entry) == entry:
            found[id_] = entry
    return found


def _without_key(entry: RawEntry) -> RawEntry:
    """The user's own takes its place."""
    options = {name: value for name, value in entry.get("options", {}).items() if name != "apiKey"}
    if "headers" in options:
        options["headers"] = {name: value for name, value in options["headers"].items() if name.lower() not in _KEY_HEADERS}
    return {**entry, "options": options}


def _with_names(operator: RawEntry, project: RawEntry, known: Catalogue, provider_id: str) -> RawEntry:
    """The operator's entry, with what the project says of its models and with the project's names for them."""
    said: Entries = project.get("models") or {}
    if not said:
        return operator
    models = dict(_named_models(said, operator, known.entries(provider_id)))
    return {**operator, "models": {**operator.get("models", {}), **models}}


def _named_models(said: Entries, operator: RawEntry, listed: Collection[str]) -> Iterator[tuple[str, RawEntry]]:
    configured: Entries = operator.get("models") or {}
    for model_id, fields in said.items():
        meant: str = model_id if model_id in configured or model_id in listed else fields.get("id", "")
        if (meant in configured or meant in listed) and is_offered(meant, operator):
            describing = {name: fields[name] for name in _DESCRIBING if name in fields}
            yield model_id, {"id": meant, **configured.get(meant, {}), **describing}


def is_offered(model_id: str, entry: RawEntry) -> bool:
    whitelist = entry.get("whitelist")
    return model_id not in (entry.get("blacklist") or ()) and (not whitelist or model_id in whitelist)
