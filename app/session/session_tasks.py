"""Background tasks of sessions that may outlive their turn, titles and diffs; and of directories: new worktrees."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any

from app.schema.errors import NotFound

log = logging.getLogger(__name__)


class SessionTasks:
    """Owns the tasks until they are done, their session is deleted, or the server stops. Logs their errors."""

    def __init__(self) -> None:
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def start(self, session_id: str, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(_logged(session_id, name, work), name=name)
        self._tasks.setdefault(session_id, set()).add(task)
        task.add_done_callback(lambda _: self._discard(session_id, task))
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it begins
        return task

    async def cancel(self, session_id: str) -> None:
        """Cancels the session's tasks and waits for their end."""
        await _cancelled(self._tasks.get(session_id, ()))

    async def finished(self) -> None:
        """Returns when all tasks of all sessions are done."""
        while tasks := self._all():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancels unfinished tasks. Their results are missing until the session's next turn."""
        await _cancelled(self._all())

    def _all(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._tasks.values() for task in tasks]

    def _discard(self, session_id: str, task: asyncio.Task[None]) -> None:
        tasks = self._tasks[session_id]
        tasks.discard(task)
        if not tasks:
            del self._tasks[session_id]


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(list(tasks))


async def _logged(session_id: str, name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except NotFound as gone:
        log.debug("the %s of %s is dropped: %s", name, session_id, gone)
    except Exception:
        log.exception("the %s of %s could not be brought up to date", name, session_id)
