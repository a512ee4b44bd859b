"""Graceful shutdown: a stopping server accepts no new work, and serves only requests that let running turns finish."""

import asyncio
from typing import ClassVar

from app.schema.errors import ServiceError


class ServerStopping(ServiceError):
    """Nothing was stored; the request may be made again after `retry_after` seconds."""

    status = 503
    name = "ServerStoppingError"
    retry_after: ClassVar[int] = 5

    def __init__(self) -> None:
        super().__init__("The server is stopping and takes no new work. Nothing was stored: send this again when it is back.")


class Draining:
    """Whether the server is stopping, and how many requests that start work are still being taken."""

    def __init__(self) -> None:
        self.has_begun = False
        self.requests = 0
        self._none_left = asyncio.Event()
        self._none_left.set()

    def begin(self) -> None:
        """Safe to call from a signal handler."""
        self.has_begun = True

    def take(self) -> None:
        """A request that starts work: what begins before the server stops is waited for, until it is `done`. Raises
        ServerStopping."""
        if self.has_begun:
            raise ServerStopping
        self.requests += 1
        self._none_left.clear()

    def done(self) -> None:
        self.requests -= 1
        if not self.requests:
            self._none_left.set()

    async def requests_taken(self) -> None:
        """Returns when every admitted request has started its work."""
        await self._none_left.wait()
