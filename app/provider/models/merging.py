from collections.abc import Mapping
from functools import reduce
from typing import Any

from app.config.merge import deep_merge


def merge_layers(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merges the layers as the configuration does: later values win, dicts are merged key by key."""
    return reduce(deep_merge, (layer for layer in layers if layer), {})
