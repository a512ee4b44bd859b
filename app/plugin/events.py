"""Delivers the events of a directory to its plugins, each at its own pace, without blocking anything else."""

import logging
from collections.abc import Callable
from contextlib import closing

import orjson

from app.bus.memory import Listener
from app.plugin.runner import HookRunner

log = logging.getLogger(__name__)


async def forward(subscribe: Callable[[], Listener], hooks: HookRunner, plugin: str) -> None:
    """Until the directory is closed. What waits for a plugin is bounded: one that falls behind loses what waited."""
    while True:
        with closing(subscribe()) as listener:
            await _notify(listener, hooks, plugin)
        if not listener.fell_behind:
            return
        log.warning("plugin %s: its hook event is too slow; the events that waited for it were dropped", plugin)


async def _notify(listener: Listener, hooks: HookRunner, plugin: str) -> None:
    while frames := await listener.take():
        for frame in frames:
            await hooks.notify(plugin, "event", {"event": orjson.loads(frame.event.payload)})
