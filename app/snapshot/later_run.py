"""Share one piece of work among many callers without handing anyone a result older than their call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LaterRun(Generic[T]):
    """Every call is answered by a run that begins after the call: those that come while one runs share the next.

    A caller that is cancelled leaves the run to the others.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.create_task(self._run_after(self._running))
        return await asyncio.shield(self._next)

    async def _run_after(self, earlier: "asyncio.Task[T] | None") -> T:
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        self._running, self._next = self._next, None
        return await self._work()
