"""A page of the web that a test writes, and counts the requests of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class WebPage:
    """`answering` unset: requests hang. `etag`: a request that knows it gets a 304."""

    body: str
    status: str = "200 OK"
    etag: str = ""
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
            known = bool(self.etag) and f"if-none-match: {self.etag}" in self.requests[-1].lower()
            self.statuses.append("304 Not Modified" if known else self.status)
            writer.write(self._head() + (b"" if known else self.body.encode()))
            await writer.drain()
        writer.close()

    def _head(self) -> bytes:
        etag = f"ETag: {self.etag}\r\n" if self.etag else ""
        kind = f"Content-Type: {self.content_type}\r\n"
        length = 0 if self.statuses[-1].startswith("304") else len(self.body.encode())
        return f"HTTP/1.1 {self.statuses[-1]}\r\n{etag}{kind}Content-Length: {length}\r\nConnection: close\r\n\r\n".encode()


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
