"""JSON of model providers, as it can be stored."""

import json
from typing import Any

import orjson


def parse_json(text: str | bytes) -> Any:
    """Raises ValueError for invalid JSON. Half of a surrogate pair, which some servers send in a chunk of its own, becomes
    U+FFFD, because it cannot be stored."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        lenient = json.dumps(json.loads(text), ensure_ascii=False)
        return orjson.loads(lenient.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
