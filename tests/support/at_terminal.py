"""A client at a terminal: what it types, and what it is sent, over a real WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

SECONDS = 60.0
"""Until a test that waits has failed."""


@dataclass
class TerminalClient:
    """`positions`: the cursors that it was told; `code`: how the connection was closed."""

    socket: ClientConnection
    text: str = ""
    positions: list[int] = field(default_factory=list)
    code: int | None = None

    async def type(self, text: str) -> None:
        await self.socket.send(text)

    async def until(self, wanted: str) -> str:
        """All that was printed, once it has `wanted` in it."""
        await self._read(lambda: wanted in self.text)
        return self.text

    async def until_told(self, count: int = 1) -> int:
        """The latest cursor, once it was told so many."""
        await self._read(lambda: len(self.positions) >= count)
        return self.positions[-1]

    async def until_closed(self) -> int:
        await self._read(lambda: self.code is not None)
        assert self.code is not None
        return self.code

    async def _read(self, is_enough: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not is_enough():
                assert self.code is None, f"closed with {self.code} after {self.text!r}"
                await self._take()

    async def _take(self) -> None:
        try:
            message = await self.socket.recv()
        except ConnectionClosed as closed:
            self.code = closed.rcvd.code if closed.rcvd else -1
            return
        if isinstance(message, str):
            self.text += message
        else:
            assert message[:1] == b"\0"
            self.positions.append(json.loads(message[1:])["cursor"])


@asynccontextmanager
async def at_terminal(
    port: int, pty_id: str, *, face: str = "", headers: Mapping[str, str] | None = None, **query: str
) -> AsyncIterator[TerminalClient]:
    """`face`: `/api` for the second API. Raises InvalidStatus when it is refused."""
    own = dict(headers or {})
    url = f"ws://{own.pop('Host', f'127.0.0.1:{port}')}{face}/pty/{pty_id}/connect?{urlencode(query)}"
    place: dict[str, Any] = {"host": "127.0.0.1", "port": port, "proxy": None}
    async with connect(url, additional_headers=own, max_size=None, open_timeout=SECONDS, **place) as socket:
        yield TerminalClient(socket)


async def refusal(port: int, pty_id: str, **options: Any) -> int:
    """The status that a connection is refused with, 101 if it is not."""
    try:
        async with at_terminal(port, pty_id, **options):
            return 101
    except InvalidStatus as error:
        return error.response.status_code
