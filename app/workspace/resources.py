"""Reference counting for the connections of an instance."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.mcp.servers import McpServers
from app.provider.registry import Providers
from app.util.tasks import TaskSet


class Resources:
    """MCP servers and connections to providers, open from the first `acquire` to the last `release`. A directory holds those of
    its current instance, a turn those that it began with. A later `acquire` opens them again. `closing` holds the closing
    tasks."""

    def __init__(self, providers: Providers, mcp: McpServers, closing: TaskSet) -> None:
        self._providers = [providers]
        self._mcp = mcp
        self._users = 0
        self._closing = closing

    def add(self, providers: Providers) -> None:
        """Of a user of the same directory; closed with the others."""
        self._providers.append(providers)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        self._users += 1
        if self._users == 1:
            self._mcp.start()

    def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._mcp.stop()
            self._closing.start(self._close(), "close an instance")

    async def _close(self) -> None:
        if self._users == 0:
            for providers in self._providers:
                await providers.close()
        await self._mcp.stopped()
