"""Secrets do not leave the server: what looks like a key is replaced before it is sent to a client."""

import re
from collections.abc import Mapping
from typing import Any

from app.config.masking import MASK, SECRET_HEADER
from app.schema.model import Model, ProviderInfo

_SECRET_NAME = re.compile(
    r"^key$|(api|access|private|secret)[-_]?key|secret|passw|passphrase|token$|authorization|[-_]auth$|credential|cookie",
    re.IGNORECASE,
)
URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def mask_secrets(value: Any) -> Any:
    """The same tree with every string under a secret-looking name masked, and logins inside URLs removed."""
    if isinstance(value, Mapping):
        return {key: _mask_field(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    return URL_LOGIN.sub(f"{MASK}@", value) if isinstance(value, str) else value


def is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))


def mask_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: MASK if value and SECRET_HEADER.search(name) else mask_secrets(value) for name, value in headers.items()}


def _mask_field(name: str, value: Any) -> Any:
    if name == "headers" and isinstance(value, Mapping):
        return mask_headers(value)
    return MASK if isinstance(value, str) and value and is_secret(name) else mask_secrets(value)


def mask_provider(info: ProviderInfo) -> ProviderInfo:
    return info.model_copy(
        update={
            "key": MASK if info.key else None,
            "options": mask_secrets(info.options),
            "models": {model_id: _mask_model(model) for model_id, model in info.models.items()},
        }
    )


def _mask_model(model: Model) -> Model:
    if not (model.headers or model.options):
        return model
    return model.model_copy(update={"headers": mask_headers(model.headers), "options": mask_secrets(model.options)})
