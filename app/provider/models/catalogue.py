"""The providers and models that come with the server: what models.dev says of them, with a date, in models.jsonl.

Its first line, with the providers, is read at the start; a line of each model when a directory uses its provider.
scripts/refresh_models.py makes it anew.
"""

from collections.abc import Mapping
from pathlib import Path

import orjson

from app.provider import npm
from app.provider.models.entries import RawEntry, make_model
from app.schema.model import Model, ProviderInfo

LISTED = Path(__file__).with_name("models.jsonl")


class Catalogue:
    """`providers`: those that can be connected, without their models. One instance per process."""

    def __init__(self, file: Path = LISTED) -> None:
        self._file = file
        self._models: dict[str, dict[str, Model]] = {}
        with file.open("rb") as lines:
            self.providers: dict[str, RawEntry] = orjson.loads(next(lines))["providers"]

    def entries(self, provider_id: str) -> dict[str, RawEntry]:
        """The models by id as they are listed; none of a provider that is not."""
        if provider_id not in self.providers:
            return {}
        start = f'{{"of":"{provider_id}",'.encode()
        with self._file.open("rb") as lines:
            found = [orjson.loads(line) for line in lines if line.startswith(start)]
        return {entry["id"]: entry for entry in found}

    def models(self, provider_id: str) -> Mapping[str, Model]:
        """The same as models, for all directories: the caller must not change them."""
        if provider_id in self.providers and provider_id not in self._models:
            provider, entries = self.providers[provider_id], self.entries(provider_id)
            self._models[provider_id] = {id_: make_model(provider_id, id_, entry, provider) for id_, entry in entries.items()}
        return self._models.get(provider_id, {})


def known_info(known: Catalogue, provider_id: str) -> ProviderInfo:
    """A known provider that is not connected, for clients."""
    provider = known.providers[provider_id]
    return ProviderInfo(
        id=provider_id,
        name=provider["name"],
        source="custom",
        env=provider["env"],
        options=provider.get("options", {}),
        models={id_: model for id_, model in known.models(provider_id).items() if model.status in ("active", "beta")},
    )


def scripted_info() -> ProviderInfo:
    """The provider of a server without keys, which answers by rules."""
    limit = {"context": 200_000, "output": 32_000}
    models = {
        id_: make_model("scripted", id_, {"name": name, "family": "scripted", "limit": limit}, {"npm": npm.SCRIPTED})
        for id_, name in (("rules", "Rules"), ("title", "Titles"))
    }
    return ProviderInfo(id="scripted", name="Scripted (no language model)", source="custom", models=models)
