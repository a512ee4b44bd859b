"""Maps OpenCode's option names (`reasoningEffort`) to those of a provider's API."""

from collections.abc import Collection, Mapping
from typing import Any

from app.provider.base import UnusableOption

_NOT_SENT = ("api_base", "base_url", "baseURL", "stream_options")
"""A proxy may send the request to such an address, with a key of its own; and what an answer took is always asked for."""


def renamed(options: Mapping[str, Any], names: Mapping[str, str], dropped: Collection[str] = ()) -> dict[str, Any]:
    """Options without an entry in `names` keep their name."""
    left_out = (*dropped, *_NOT_SENT)
    return {names.get(key, key): value for key, value in options.items() if key not in left_out and value is not None}


def present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def object_option(options: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """None where it is not set. Raises UnusableOption."""
    value = options.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise UnusableOption(name, "an object", value)


def list_option(options: Mapping[str, Any], name: str) -> list[Any]:
    """Empty where it is not set. Raises UnusableOption."""
    value = options.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise UnusableOption(name, "a list", value)
