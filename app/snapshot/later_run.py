"""Coalesces concurrent calls of an operation, without returning a result from before a call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from app.util.tasks import forget_failure

T = TypeVar("T")


class CoalescedRun(Generic[T]):
    """Every call gets the result of a run that begins after the call. Calls during a run share the next run.

    Cancelling a caller does not cancel the run.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.create_task(self._run_after(self._running))
            self._next.add_done_callback(forget_failure)
        return await asyncio.shield(self._next)

    async def _run_after(self, earlier: "asyncio.Task[T] | None") -> T:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        self._running, self._next = self._next, None
        return await self._work()
