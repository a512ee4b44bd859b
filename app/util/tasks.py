"""Work in the background: the loop alone would let go of a task that nothing refers to."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSet:
    """Refers to tasks until they are done. They log what goes wrong themselves."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Returns when no task is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)
