"""Detects a model that repeats the same tool call. Pure."""

from collections.abc import Sequence
from typing import Any

from app.schema.part import Pending, ToolPart

THRESHOLD = 3


def is_looping(calls: Sequence[ToolPart], tool: str, arguments: dict[str, Any]) -> bool:
    """Whether the last THRESHOLD of `calls` are this same call. `calls`: the turn's calls across its steps, newest last."""
    newest = calls[-THRESHOLD:]
    return len(newest) == THRESHOLD and all(
        call.tool == tool and not isinstance(call.state, Pending) and call.state.input == arguments for call in newest
    )
