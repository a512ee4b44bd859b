"""Keeps the secrets of providers out of error messages and of the commands that tools run."""

from collections.abc import Iterable, Mapping

from app.provider.base import ApiFailure, ProviderFailure
from app.schema.model import ProviderInfo
from app.util.secrets import redacted, secrets_of


def key_variables(connected: Iterable[ProviderInfo], environ: Mapping[str, str]) -> set[str]:
    """The environment variables with a provider's key: those that it reads, and those whose value is one of its secrets."""
    infos = list(connected)
    named = {name for info in infos for name in info.env}
    secrets = {secret for info in infos for secret in secrets_of({"key": info.key, "options": info.options, "headers": {}})}
    secrets |= {secret for info in infos for model in info.models.values() for secret in secrets_of(model.headers, headers=True)}
    return named | {name for name, value in environ.items() if value in secrets}


def redact(failure: ProviderFailure, secrets: Iterable[str]) -> None:
    """Removes the secrets: a provider or a proxy may quote the request in its error."""
    hidden = list(secrets)
    failure.message = redacted(failure.message, hidden)
    if isinstance(failure, ApiFailure):
        failure.body = failure.body and redacted(failure.body, hidden)
        failure.headers = _without(failure.headers, hidden)
        failure.metadata = _without(failure.metadata, hidden)
    failure.args = (failure.message,)


def _without(texts: dict[str, str] | None, secrets: list[str]) -> dict[str, str] | None:
    return texts and {name: redacted(text, secrets) for name, text in texts.items()}
