"""Background tasks. The event loop keeps only weak references to tasks, so something must hold them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from app.util.failure_log import FailureLog

log = logging.getLogger(__name__)

T = TypeVar("T")


def forget_failure(task: asyncio.Task[Any]) -> None:
    """For a task that others await: each raises its failure. Where all of them have been cancelled nobody needs it, and asyncio
    is not to log that it was never retrieved."""
    if not task.cancelled():
        task.exception()


async def every(seconds: float, work: Callable[[], Awaitable[Any]], what: str, *, longest: float = 0) -> None:
    """Does `work` again and again, until it is cancelled. Where that fails, the log says that `what` failed, and it is tried
    again the next time; with each failure in a row the pause doubles, up to `longest`."""
    failures, pause = FailureLog(log, what), seconds
    while True:
        await asyncio.sleep(pause)
        try:
            await work()
            if failures.count:
                failures.worked()
            pause = seconds
        except Exception as error:  # noqa: BLE001  whatever it is, the next time may succeed
            failures.failed(error)
            pause = max(seconds, min(2 * pause, longest))


class TaskSet:
    """Holds references to tasks until they are done. The tasks log their own errors."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Returns when all tasks are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Ends them, and returns when all have ended."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
