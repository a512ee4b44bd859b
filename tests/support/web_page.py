"""A page of the web that a test writes, and counts the requests of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class WebPage:
    """`answering` unset: requests hang."""

    body: str
    status: str = "200 OK"
    url: str = ""
    content_type: str = "text/plain"
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    """Of the answers."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await self.answering.wait()
            self.statuses.append(self.status)
            writer.write(self._head() + self.body.encode())
            await writer.drain()
        writer.close()

    def _head(self) -> bytes:
        kind = f"Content-Type: {self.content_type}\r\n"
        length = len(self.body.encode())
        return f"HTTP/1.1 {self.statuses[-1]}\r\n{kind}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode()


@asynccontextmanager
async def web_page(body: str = "", *, hangs: bool = False, **options: str) -> AsyncIterator[WebPage]:
    page = WebPage(body, **options)
    if not hangs:
        page.answering.set()
    server = await asyncio.start_server(page.answer, "127.0.0.1", 0)
    page.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rules.md"
    try:
        yield page
    finally:
        page.answering.set()
        server.close()
