"""Reference counting for the connections of an instance."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.lsp.servers import LanguageServers
from app.mcp.servers import McpServers
from app.provider.registry import Providers
from app.util.tasks import TaskSet


class Resources:
    """MCP servers, language servers and connections to providers, open from the first `acquire` to the last `release`. A
    directory holds those of its current instance, a turn those that it began with. A later `acquire` opens them again. `closing`
    holds the closing tasks."""

    def __init__(self, providers: Providers, mcp: McpServers, language_servers: LanguageServers, closing: TaskSet) -> None:
        self._providers = [providers]
        self._outdated: list[Providers] = []
        """Replaced, and maybe in use by a turn that began before."""
        self._programs = (mcp, language_servers)
        self._users = self._turns = 0
        self._closing = closing

    def add(self, providers: Providers, replaced: Providers | None = None) -> None:
        """Of a user of the same directory; closed with the others. What they replace is closed when no turn runs."""
        self._providers.append(providers)
        if replaced is not None:
            self._providers.remove(replaced)
            self._outdated.append(replaced)
            self._close_outdated()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """For a turn."""
        self.acquire()
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1
            self._close_outdated()
            self.release()

    def _close_outdated(self) -> None:
        if self._turns == 0:
            for providers in self._outdated:
                self._closing.start(providers.close(), "close what a user's models replaced")
            self._outdated.clear()

    def acquire(self) -> None:
        self._users += 1
        if self._users == 1:
            for programs in self._programs:
                programs.start()

    def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            for programs in self._programs:
                programs.stop()
            self._closing.start(self._close(), "close an instance")

    async def _close(self) -> None:
        if self._users == 0:
            for providers in self._providers:
                await providers.close()
        for programs in self._programs:
            await programs.stopped()
