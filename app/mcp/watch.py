"""What the task of a connection waits for once it is up: a change that the server tells of, or the end."""

import asyncio


class McpWatch:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._changed = False
        self.end: Exception | None = None
        self._stopped = False
        self.last_status: int | None = None
        """Of the HTTP answers that came."""

    def changed(self) -> None:
        self._changed = True
        self._event.set()

    def ended(self, why: Exception) -> None:
        """The first reason counts."""
        self.end = self.end or why
        self._event.set()

    def stop(self) -> None:
        self._stopped = True
        self._event.set()

    async def change(self) -> bool:
        """True at a change, False when stopped. Raises why the connection ended."""
        await self._event.wait()
        self._event.clear()
        if self.end is not None:
            raise self.end
        return not self._stopped
