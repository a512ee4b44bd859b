"""Checks stored bodies, which are JSON objects and may be damaged."""

from typing import Any

import orjson


def is_valid_body(body: Any) -> bool:
    """Whether it is a non-empty JSON object. An empty one is invalid because ids are spliced in before its first key."""
    try:
        value = orjson.loads(body) if isinstance(body, str) else None
        return isinstance(value, dict) and bool(value)
    except ValueError:
        return False
