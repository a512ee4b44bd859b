"""A client at a terminal: what it types, and what it is sent, over a real WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

SECONDS = 60.0
"""Until a test that waits has failed."""


@dataclass
class TerminalClient:
    """`positions`: the cursors that it was told; `code`: how the connection was closed."""

    socket: aiohttp.ClientWebSocketResponse
    text: str = ""
    positions: list[int] = field(default_factory=list)
    code: int | None = None

    async def type(self, text: str) -> None:
        await self.socket.send_str(text)

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
                self._take(await self.socket.receive())

    def _take(self, message: aiohttp.WSMessage) -> None:
        match message.type:
            case aiohttp.WSMsgType.TEXT:
                self.text += message.data
            case aiohttp.WSMsgType.BINARY:
                assert message.data[:1] == b"\0"
                self.positions.append(json.loads(message.data[1:])["cursor"])
            case aiohttp.WSMsgType.CLOSE:
                self.code = message.data
            case _:
                self.code = self.socket.close_code or -1


@asynccontextmanager
async def at_terminal(
    port: int, pty_id: str, *, face: str = "", headers: Mapping[str, str] | None = None, **query: str
) -> AsyncIterator[TerminalClient]:
    """`face`: `/api` for the second API. Raises aiohttp.WSServerHandshakeError, with the status, when it is refused."""
    url = f"http://127.0.0.1:{port}{face}/pty/{pty_id}/connect"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        async with session.ws_connect(url, params=query, headers=headers, max_msg_size=0) as socket:
            yield TerminalClient(socket)


async def refusal(port: int, pty_id: str, **options: Any) -> int:
    """The status that a connection is refused with, 101 if it is not."""
    try:
        async with at_terminal(port, pty_id, **options):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status
