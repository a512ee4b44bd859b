"""Plugins are told of events at their own pace, without holding up others, and called though they may do anything."""

import asyncio
import functools
import json
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.events.bus.base import Event
from app.events.bus.listener import DISCONNECT_ABOVE, Listener
from app.events.bus.memory import MemoryBus
from app.tools.plugins import runner
from app.tools.plugins.host import forward
from app.tools.plugins.runner import HookRunner


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
    hooks = HookRunner([("listener", {"event": hearing.hook})])
    task = asyncio.create_task(forward(lambda: Listener(bus, "/here", keeps_open=False), hooks, "listener", hearing.hook))
    await asyncio.sleep(0)
    return task


async def test_a_plugin_hears_the_events_of_its_directory_in_order_and_does_not_keep_it_in_use() -> None:
    bus, hearing = MemoryBus(), Hearing()
    hearing.go_on.set()
    task = await forwarding(bus, hearing)
    for one in (event("one"), event("two"), event("elsewhere", directory="/there"), event("three")):
        bus.publish(one)
    await hearing.until("three")
    assert hearing.heard == ["one", "two", "three"]
    assert bus.directories() == set()
    Listener(bus, "/here")
    assert bus.directories() == {"/here"}
    bus.disconnect("/here")
    async with asyncio.timeout(60):
        await task


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
    while "plugin listener: its hook event is too slow" not in caplog.text:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    bus.publish(event("last"))
    await hearing.until("last")
    assert "lost" not in hearing.heard
    task.cancel()


# Calling code that may do anything.


async def doubled(value: int) -> int:
    return value * 2


@pytest.mark.parametrize("function", [doubled, lambda value: value * 2, functools.partial(doubled), lambda value: doubled(value)])
async def test_any_kind_of_function_is_called(function: Callable[..., Any]) -> None:
    assert await runner.call(function, 21, seconds=5) == 42


async def test_a_plain_function_does_not_hold_up_the_loop() -> None:
    release = threading.Event()
    waiting = asyncio.create_task(runner.call(release.wait, 20))
    await asyncio.sleep(0)
    release.set()
    assert await waiting is True


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_whatever_is_raised_comes_as_an_exception(kind: str, error: BaseException) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    with pytest.raises(Exception) as raised:
        await runner.call(plain if kind == "thread" else coroutine, seconds=5)
    if isinstance(error, ValueError):
        assert raised.value is error
    else:
        assert type(error).__name__ in str(raised.value)


async def test_what_cancels_itself_does_not_cancel_its_caller() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled itself"):
        await runner.call(cancelled)


async def test_what_takes_too_long_is_cut_even_if_it_would_not_end() -> None:
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ended.wait()

    with pytest.raises(TimeoutError, match=r"longer than 0\.01 s"):
        await runner.call(stubborn, seconds=0.01)
    ended.set()


async def test_a_thread_that_hangs_takes_no_place_from_others() -> None:
    release = threading.Event()
    for _ in range(40):
        with pytest.raises(TimeoutError):
            await runner.call(release.wait, seconds=0.001)
    assert await asyncio.to_thread(lambda: "free") == "free"
    release.set()


async def test_a_cancelled_caller_cancels_the_call() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def waiting() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(runner.call(waiting))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        await cancelled.wait()
    assert sys.exc_info() == (None, None, None)
