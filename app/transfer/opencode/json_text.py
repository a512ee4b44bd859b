"""Parses JSON as JavaScript writes it."""

import json
from typing import Any

import orjson


def parse_json(text: bytes | str) -> Any:
    """Half of a surrogate pair, which JavaScript's strings may contain, becomes a replacement character. Raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        value = json.loads(text)
    paired = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return orjson.loads(paired)
