"""Background tasks, work that is repeated, and locks by name. The event loop keeps only weak references to tasks, so something
must hold them."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

log = logging.getLogger(__name__)

T = TypeVar("T")


class FailureLog:
    """Logs the first of several failures in a row, and when it works again."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what`: the subject of "… failed"."""
        self._log = log
        self._what = what
        self.count = 0

    def failed(self, error: BaseException) -> None:
        self.count += 1
        if self.count == 1:
            self._log.error("%s failed; retrying, further failures are not logged", self._what, exc_info=error)

    def worked(self) -> None:
        if self.count:
            self._log.warning("%s works again, after %d failures", self._what, self.count)
        self.count = 0


def forget_failure(task: asyncio.Task[Any]) -> None:
    """For a task that others await, each of which raises its failure. If all of them were cancelled nobody needs the failure, and
    asyncio must not log that it was never retrieved."""
    if not task.cancelled():
        task.exception()


async def every(seconds: float, work: Callable[[], Awaitable[Any]], what: str, *, longest: float = 0) -> None:
    """Repeats `work` until it is cancelled. After a failure, logs that `what` failed, and tries again the next time; with each
    failure in a row the pause doubles, up to `longest`."""
    failures, pause = FailureLog(log, what), seconds
    while True:
        await asyncio.sleep(pause)
        try:
            await work()
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
        """Cancels them, and returns when all have ended."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)


# Work that must be done every few seconds even if the event loop stands still: in a thread of its own.

HANGS_AFTER_SECONDS = 60.0
"""A loop that has stood still for longer is given up, as a dead server is: its leases and locks must not be held for good."""


class LoopHeartbeat:
    """`beat` is called in the thread, and `on_loop` on the loop when it gets to that. Neither raises anything."""

    def __init__(
        self,
        name: str,
        seconds: float,
        beat: Callable[[], None],
        on_loop: Callable[[], None] = lambda: None,
        hangs_after: float = HANGS_AFTER_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._beat = beat
        self._on_loop = on_loop
        self._hangs_after = hangs_after
        self._ends = threading.Event()
        self._seen = time.monotonic()
        """When the loop ran last."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a beat that is under way."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._seconds):
            try:
                self._loop.call_soon_threadsafe(self._see)
            except RuntimeError:  # the loop is closed
                return
            if time.monotonic() - self._seen < self._hangs_after:
                self._beat()

    def _see(self) -> None:
        self._seen = time.monotonic()
        self._on_loop()


class ProcessLocks:
    """Locks by name, held while a value is read, changed and written back."""

    is_shared = False
    """Whether the locks exclude other servers, not only other tasks of this one."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def close(self) -> None:
        pass
