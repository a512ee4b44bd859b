"""Whether this server can serve: whether a thread is free, and its heartbeat says so, or a write that is tried now."""

import asyncio
import time

from app.session.lease import Leases

FRESH_SECONDS = 3.0
"""A heartbeat stored within them answers. On PostgreSQL there always is one, so that a load balancer's checks cost nothing."""
WRITE_SECONDS = 1.0
"""How long a check waits for a write. It goes on meanwhile, and later checks wait for the same."""
TRY_AGAIN_SECONDS = 1.0
THREAD_SECONDS = 2.0
"""How long a check waits for one of the threads that requests use."""


class HealthCheck:
    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._write: asyncio.Task[None] | None = None
        self._thread: asyncio.Future[object] | None = None
        self._tried = 0.0

    async def failure(self) -> str | None:
        """Why this server cannot serve; None when it can."""
        if self._thread is None or self._thread.done():  # else one that waits for a thread
            self._thread = asyncio.get_running_loop().run_in_executor(None, object)
        if not (await asyncio.wait({self._thread}, timeout=THREAD_SECONDS))[0]:
            return f"No thread has been free for {THREAD_SECONDS:g} s: what they do in the files of projects hangs."
        if self._leases.heartbeat_age() < FRESH_SECONDS:
            return None
        write = self._try_write()
        if not (await asyncio.wait({write}, timeout=WRITE_SECONDS))[0]:
            return f"The database has stored no heartbeat of this server for {self._leases.heartbeat_age():.0f} s."
        error = write.exception()
        return f"The database accepts no writes: {getattr(error, 'orig', None) or error}" if error else None

    def _try_write(self) -> asyncio.Task[None]:
        """The one that is under way or has just failed, or else a new one."""
        now = time.monotonic()
        if self._write is None or (self._write.done() and now - self._tried > TRY_AGAIN_SECONDS):
            self._tried = now
            self._write = asyncio.create_task(self._leases.write_heartbeat(), name="health check")
        return self._write
