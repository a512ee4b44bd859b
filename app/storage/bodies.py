"""Stored bodies, which are JSON objects and may be damaged."""

from typing import Any

import orjson


def parsed(body: Any) -> dict[str, Any] | None:
    """None of a damaged one: what is no JSON, something else than an object, or an empty one."""
    try:
        value = orjson.loads(body) if isinstance(body, str) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None
