"""A model that makes the same call again and again. Pure."""

from collections.abc import Sequence
from typing import Any

from app.schema.part import ToolPart
from app.schema.tool_state import Pending

THRESHOLD = 3


def is_looping(calls: Sequence[ToolPart], tool: str, arguments: dict[str, Any]) -> bool:
    """`calls` are the calls of this turn in order, the newest last, across its steps: are the last ones all this same call?"""
    newest = calls[-THRESHOLD:]
    return len(newest) == THRESHOLD and all(
        call.tool == tool and not isinstance(call.state, Pending) and call.state.input == arguments for call in newest
    )
