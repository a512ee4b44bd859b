"""What OpenCode's own programs are given beside what every client gets: its terminal client, and `opencode run`."""

import asyncio
from collections.abc import Coroutine
from typing import Any

EVENTS_AHEAD_SECONDS = 0.2


def is_opencode(user_agent: str) -> bool:
    """They name themselves: `opencode/1.1.34`."""
    return user_agent.startswith("opencode/")


async def behind_its_events(user_agent: str, answer: Coroutine[Any, Any, bytes]) -> bytes:
    """An answer, for these programs a while after its events. `opencode run --attach` of 1.18 prints what the event stream brings
    and ends with the answer: what it has not read by then is never printed. OpenCode answers 0.1 to 0.4 s after the last text."""
    body = await answer
    if is_opencode(user_agent):
        await asyncio.sleep(EVENTS_AHEAD_SECONDS)
    return body
