"""Waiting for what no event tells of."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], what: str = "the condition", seconds: float = 60) -> Any:
    """`condition` may ask the server; what it found is returned."""
    try:
        async with asyncio.timeout(seconds):
            while not (found := await asked if inspect.isawaitable(asked := condition()) else asked):
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None
    return found
