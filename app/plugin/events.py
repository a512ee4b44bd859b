"""Telling plugins what happens in their directory, each at its own pace: no one else waits for them."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from app.bus.memory import Listener
from app.plugin.runner import HookRunner

log = logging.getLogger(__name__)


async def forward(subscribe: Callable[[], Listener], hooks: HookRunner, plugin: str) -> None:
    """Until the directory is let go of. What waits for a plugin is bounded: one that falls behind loses what waited."""
    while True:
        listener = subscribe()
        try:
            while frames := await listener.next():
                for event in _events(frames):
                    await hooks.tell(plugin, "event", {"event": event})
        finally:
            listener.close()
        if not listener.fell_behind:
            return
        log.warning("plugin %s: its hook event is too slow; the events that waited for it were dropped", plugin)


def _events(frames: bytes) -> Iterator[dict[str, Any]]:
    """Of the frames of an event stream."""
    for line in frames.split(b"\n"):
        if line.startswith(b"data: "):
            yield orjson.loads(line[6:])
