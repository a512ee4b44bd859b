"""Maps OpenCode's option names (`reasoningEffort`) to those of a provider's API."""

from collections.abc import Collection, Mapping
from typing import Any


def renamed(options: Mapping[str, Any], names: Mapping[str, str], dropped: Collection[str] = ()) -> dict[str, Any]:
    """Options without an entry in `names` keep their name."""
    return {names.get(key, key): value for key, value in options.items() if key not in dropped and value is not None}


def present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
