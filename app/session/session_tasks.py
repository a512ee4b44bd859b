"""Background tasks of sessions that may outlive their turn, titles and diffs; and of directories: new worktrees."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

from app.schema.errors import NotFound
from app.util.tasks import TaskSet

log = logging.getLogger(__name__)


class SessionTasks:
    """Owns the tasks until they are done, their session is deleted, or the server stops. Logs their errors."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, TaskSet] = defaultdict(TaskSet)

    def start(self, session_id: str, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks = self._tasks[session_id]
        task = tasks.start(_logged(session_id, name, work), name)
        task.add_done_callback(lambda _: None if tasks else self._tasks.pop(session_id, None))
        task.add_done_callback(lambda _: work.close())  # for a task that is cancelled before it begins
        return task

    async def cancel(self, session_id: str) -> None:
        """Cancels the session's tasks and waits for their end."""
        await self._tasks.get(session_id, TaskSet()).cancel()

    async def finished(self) -> None:
        """Returns when all tasks of all sessions are done."""
        while self._tasks:
            await next(iter(self._tasks.values())).wait()

    async def close(self) -> None:
        """Cancels unfinished tasks. Their results are missing until the session's next turn."""
        await asyncio.gather(*(tasks.cancel() for tasks in self._tasks.values()))


async def _logged(session_id: str, name: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except NotFound as gone:
        log.debug("the %s of %s is dropped: %s", name, session_id, gone)
    except Exception:
        log.exception("the %s of %s could not be brought up to date", name, session_id)
