"""The secrets that a provider is configured with, to be kept from what it says and from the commands that tools run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.config.masking import MASK, SECRET_HEADER
from app.provider.base import ApiFailure, ProviderFailure
from app.provider.masking import URL_LOGIN, is_secret
from app.schema.model import ProviderInfo

_SHORTEST = 6
"""A shorter key is none that anybody would keep secret, and its letters stand in any text."""


def secrets_of(value: Any, *, headers: bool = False) -> Iterator[str]:
    """Every string of a tree that masking would hide, the longest part of it that may stand alone: no scheme, no user name."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            secret = SECRET_HEADER.search(name) if headers else is_secret(name)
            yield from _whole(inner) if secret and isinstance(inner, str) else secrets_of(inner, headers=name == "headers")
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_of(inner)
    elif isinstance(value, str) and (login := URL_LOGIN.search(value)):
        yield from _whole(login[0].rstrip("@").partition(":")[2])


def _whole(secret: str) -> Iterator[str]:
    bare = secret.rpartition(" ")[2]
    if len(bare) >= _SHORTEST:
        yield bare


def key_variables(connected: Iterable[ProviderInfo], environ: Mapping[str, str]) -> set[str]:
    """The variables that hold a provider's key: those that it is said to read, and those whose value is used as a secret."""
    infos = list(connected)
    named = {name for info in infos for name in info.env}
    secrets = {secret for info in infos for secret in secrets_of({"key": info.key, "options": info.options, "headers": {}})}
    secrets |= {secret for info in infos for model in info.models.values() for secret in secrets_of(model.headers, headers=True)}
    return named | {name for name, value in environ.items() if value in secrets}


def redact(failure: ProviderFailure, secrets: Iterable[str]) -> None:
    """A provider, or what stands before it, may say in its refusal what it was sent."""
    for secret in secrets:
        failure.message = failure.message.replace(secret, MASK)
        if isinstance(failure, ApiFailure):
            failure.body = failure.body and failure.body.replace(secret, MASK)
            failure.headers = _without(failure.headers, secret)
            failure.metadata = _without(failure.metadata, secret)
    failure.args = (failure.message,)


def _without(texts: dict[str, str] | None, secret: str) -> dict[str, str] | None:
    return texts and {name: text.replace(secret, MASK) for name, text in texts.items()}
