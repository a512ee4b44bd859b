"""OpenCode's option names (`reasoningEffort`) and the names that a provider's API has for them."""

from collections.abc import Collection, Mapping
from typing import Any


def renamed(options: Mapping[str, Any], names: Mapping[str, str], dropped: Collection[str] = ()) -> dict[str, Any]:
    """Options without a name here go out as they are."""
    return {names.get(key, key): value for key, value in options.items() if key not in dropped and value is not None}


def present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
