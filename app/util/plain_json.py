"""What other people's code hands over, as JSON has it."""

import json
from typing import Any

from pydantic_core import to_json

from app.util.json_bounds import DEEPEST, is_deeper


def plain_json(value: Any, deepest: int = DEEPEST) -> Any:
    """A copy, which whoever gave the value can change no more. Raises ValueError for what cannot be written as JSON: an object
    without a form there, half of a surrogate pair, a value that contains itself, or one nested too deep."""
    plain = json.loads(to_json(value, inf_nan_mode="null"))
    if is_deeper(plain, deepest):
        raise ValueError(f"it is nested more than {deepest} deep")
    return plain
