"""Telling plugins of events: at their own pace, without holding up others."""

import asyncio
import json
import logging
from typing import Any

import pytest

from app.events.bus.base import Event
from app.events.bus.listener import DISCONNECT_ABOVE, Listener
from app.events.bus.memory import MemoryBus
from app.tools.plugins.host import forward
from app.tools.plugins.runner import HookRunner, NamedHooks


def event(name: str, size: int = 0, directory: str = "/here") -> Event:
    return Event(name, json.dumps({"type": name, "properties": {"text": "x" * size}}).encode(), directory=directory)


class Hearing:
    """An `event` hook that waits, before each event but the first, until it may go on."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.came = asyncio.Condition()
        self.go_on = asyncio.Event()

    async def hook(self, given: dict[str, Any]) -> None:
        async with self.came:
            self.heard.append(given["event"]["type"])
            self.came.notify_all()
        await self.go_on.wait()

    async def until(self, name: str) -> None:
        async with asyncio.timeout(60), self.came:
            await self.came.wait_for(lambda: name in self.heard)


async def forwarding(bus: MemoryBus, hearing: Hearing) -> asyncio.Task[None]:
    hooks = HookRunner([NamedHooks("listener", {"event": hearing.hook})])
    task = asyncio.create_task(forward(lambda: Listener(bus, "/here", keeps_open=False), hooks, "listener"))
    await asyncio.sleep(0)
    return task


async def test_a_plugin_hears_the_events_of_its_directory_in_order() -> None:
    bus, hearing = MemoryBus(), Hearing()
    hearing.go_on.set()
    task = await forwarding(bus, hearing)
    for name in ("one", "two"):
        bus.publish(event(name))
    bus.publish(event("elsewhere", directory="/there"))
    bus.publish(event("three"))
    await hearing.until("three")
    assert hearing.heard == ["one", "two", "three"]
    bus.disconnect("/here")
    await asyncio.wait_for(task, 60)


async def test_a_plugin_that_listens_does_not_keep_its_directory_in_use() -> None:
    bus = MemoryBus()
    Listener(bus, "/here", keeps_open=False)
    assert bus.directories() == set()
    Listener(bus, "/here")
    assert bus.directories() == {"/here"}


async def test_a_slow_plugin_loses_events_and_hears_later_ones(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    bus, hearing = MemoryBus(), Hearing()
    task = await forwarding(bus, hearing)
    bus.publish(event("first"))
    await hearing.until("first")
    for _ in range(7):
        bus.publish(event("lost", DISCONNECT_ABOVE // 5))
        await asyncio.sleep(0)
    hearing.go_on.set()
    while not any("too slow" in record.getMessage() for record in caplog.records):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    bus.publish(event("last"))
    await hearing.until("last")
    assert "lost" not in hearing.heard
    assert "plugin listener: its hook event is too slow" in caplog.text
    task.cancel()
