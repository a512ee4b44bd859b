"""Work in the background: what is done every few seconds, what fails in a row, and tasks that end together."""

import asyncio
import logging
import time
from collections.abc import Callable

import pytest

from app.util.tasks import FailureLog, LoopHeartbeat, TaskSet, every

PATIENCE = 30.0


async def test_work_that_fails_each_time_is_tried_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries == 5:
            raise asyncio.CancelledError
        raise OSError("full")

    with pytest.raises(asyncio.CancelledError):
        await every(0, work, "trimming")
    assert tries == 5 and [record.message.split(";")[0] for record in caplog.records] == ["trimming failed"]


@pytest.mark.parametrize(
    ("longest", "pauses"), [(0, [1, 1, 1, 1, 1, 1]), (5, [1, 2, 4, 5, 1, 2])], ids=["the same", "up to the longest"]
)
async def test_the_pause_after_failures(monkeypatch: pytest.MonkeyPatch, longest: float, pauses: list[float]) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def work() -> None:
        if len(slept) == 6:
            raise asyncio.CancelledError
        if len(slept) != 4:
            raise OSError("full")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await every(1, work, "looking", longest=longest)
    assert slept == pauses


async def test_cancelled_tasks_have_ended_and_so_have_those_that_they_started() -> None:
    tasks, ended = TaskSet(), []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            if name == "first":
                tasks.start(wait("second"), "second")
                await asyncio.sleep(0)

    tasks.start(wait("first"), "first")
    await asyncio.sleep(0)
    await tasks.cancel()
    assert ended == ["first", "second"]


def test_of_a_row_of_failures_the_first_and_the_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("test"), "beating")
    for _ in range(2):
        for _ in range(3):
            failures.failed(OSError("full"))
        for _ in range(3):
            failures.worked()
    logged = [(record.levelname, record.message.split(";")[0], bool(record.exc_info)) for record in caplog.records]
    assert logged == [("ERROR", "beating failed", True), ("WARNING", "beating works again, after 3 failures", False)] * 2


def block_until(condition: Callable[[], bool]) -> None:
    """The loop stands still meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def test_a_heartbeat_goes_on_while_the_loop_stands_still_until_it_is_closed() -> None:
    beats: list[None] = []
    seen: list[None] = []
    heartbeat = LoopHeartbeat("heartbeat", 0.01, lambda: beats.append(None), lambda: seen.append(None))
    block_until(lambda: len(beats) >= 5)
    assert seen == []
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 5:
            await asyncio.sleep(0.001)
    heartbeat.close()
    ended = len(beats)
    await asyncio.sleep(0.05)
    assert len(beats) == ended


async def test_a_heartbeat_ends_when_the_loop_hangs_and_goes_on_with_it() -> None:
    beats: list[None] = []

    def none_for(seconds: float) -> bool:
        before = len(beats)
        time.sleep(seconds)
        return len(beats) == before

    heartbeat = LoopHeartbeat("heartbeat", 0.01, lambda: beats.append(None), hangs_after=0.3)
    block_until(lambda: none_for(0.3))
    hung_with = len(beats)
    async with asyncio.timeout(PATIENCE):
        while len(beats) == hung_with:
            await asyncio.sleep(0.001)
    heartbeat.close()


def test_a_heartbeat_ends_with_its_loop() -> None:
    async def start() -> LoopHeartbeat:
        return LoopHeartbeat("heartbeat", 0.01, lambda: None)

    asyncio.run(start())._thread.join(PATIENCE)
