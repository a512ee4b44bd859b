"""Background tasks. The event loop keeps only weak references to tasks, so something must hold them."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def forget_failure(task: asyncio.Task[Any]) -> None:
    """For a task that others await: each raises its failure. Where all of them have been cancelled nobody needs it, and asyncio
    is not to log that it was never retrieved."""
    if not task.cancelled():
        task.exception()


class TaskSet:
    """Holds references to tasks until they are done. The tasks log their own errors."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Returns when all tasks are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)
