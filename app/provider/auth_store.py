"""The credentials that clients store: `auth.json`, a map from provider id to credentials, readable by its owner only. And which
variables of the environment hold one, so that commands are run without them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.schema.model import Auth, ProviderInfo
from app.util.data_files import PrivateFileStamp, PrivateJson
from app.util.secrets import secrets_of

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
            self._entries = _valid(self._file.read())
            self._stamp = stamp
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


def _valid(raw: dict[str, Any]) -> dict[str, Auth]:
    parsed = ((provider_id, _parse(entry)) for provider_id, entry in raw.items())
    return {provider_id: auth for provider_id, auth in parsed if auth is not None}


def _parse(entry: Any) -> Auth | None:
    try:
        return _AUTH.validate_python(entry)
    except ValidationError:
        return None


def key_variables(connected: Iterable[ProviderInfo], environ: Mapping[str, str]) -> set[str]:
    """The environment variables with a provider's key: those that it reads, and those whose value is one of its secrets."""
    infos = list(connected)
    named = {name for info in infos for name in info.env}
    secrets = {secret for info in infos for secret in secrets_of({"key": info.key, "options": info.options, "headers": {}})}
    secrets |= {secret for info in infos for model in info.models.values() for secret in secrets_of(model.headers, headers=True)}
    return named | {name for name, value in environ.items() if value in secrets}
