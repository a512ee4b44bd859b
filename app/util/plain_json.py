"""What other people's code hands over, as JSON has it."""

from typing import Any

from pydantic_core import from_json, to_json


def plain_json(value: Any) -> Any:
    """A copy, which whoever gave the value can change no more. Raises ValueError for what cannot be written as JSON: an object
    without a form there, half of a surrogate pair, a value that contains itself, or one nested too deep to be read again."""
    return from_json(to_json(value, inf_nan_mode="null"))
