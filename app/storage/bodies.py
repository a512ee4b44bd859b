"""Stored bodies are JSON objects; a disk or a hand may have damaged one."""

from typing import Any

import orjson


def is_sound(body: Any) -> bool:
    """Not an empty one: ids are spliced in before what it holds."""
    try:
        value = orjson.loads(body) if isinstance(body, str) else None
        return isinstance(value, dict) and bool(value)
    except ValueError:
        return False
