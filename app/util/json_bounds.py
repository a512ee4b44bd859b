"""How many values a JSON text has, how deep they are, and a copy within these bounds: a small text can take gigabytes, and a deep
one cannot be rendered."""

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

DEEPEST = 200
"""Pydantic writes no value that is nested more than 255 deep, and a body stands inside other values."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def has_more_values(body: bytes, most: int) -> bool:
    """Every value but the first follows a comma or an opening bracket. What strings hold is counted out only if that matters."""
    if _separators(body, 0, len(body)) <= most:
        return False
    values = start = 0
    for strings, string in enumerate(_STRING.finditer(body)):
        values += _separators(body, start, string.start())
        start = string.end()
        if values > most or strings > 2 * most:
            return True
    return values + _separators(body, start, len(body)) > most


def _separators(body: bytes, start: int, end: int) -> int:
    return body.count(b",", start, end) + body.count(b"[", start, end) + body.count(b"{", start, end)


def is_deeper(value: Any, levels: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels + 1):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _values(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def plain_json(value: Any, deepest: int = DEEPEST) -> Any:
    """A copy, which whoever gave the value can change no more. Raises ValueError for what cannot be written as JSON: an object
    without a form there, half of a surrogate pair, a value that contains itself, or one nested too deep."""
    plain = json.loads(to_json(value, inf_nan_mode="null"))
    if is_deeper(plain, deepest):
        raise ValueError(f"it is nested more than {deepest} deep")
    return plain
