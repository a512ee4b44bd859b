import asyncio

import pytest

from app.util.tasks import TaskSet, every


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
