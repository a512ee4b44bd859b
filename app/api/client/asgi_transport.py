"""An ASGI application as an httpx2 transport that hands on each piece of a body when it is sent; httpx2's waits for the end."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
from starlette.types import ASGIApp, Message, Scope


class StreamingTransport(httpx2.AsyncBaseTransport):
    """`client`: the address that requests come from, as the application sees it."""

    def __init__(self, app: ASGIApp, client: tuple[str, int] | None = ("127.0.0.1", 12345)) -> None:
        self._app = app
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(self._app, {**_scope(request), "client": self._client}, await request.aread())
        try:
            status, headers = await exchange.started()
        except BaseException:
            await exchange.aclose()
            raise
        return httpx2.Response(status, headers=headers, stream=exchange)


class _Exchange(httpx2.AsyncByteStream):
    """One request, and its answer as it comes. Closing the answer is seen as the client's disconnection."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(app, scope))

    async def started(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        message = await self._next()
        if message is None:
            raise httpx2.RemoteProtocolError("the application sent no answer")
        return message["status"], list(message["headers"])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._next()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self._gone.set()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._sent.put_nowait({"type": "end"})

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._gone.is_set():
            self._sent.put_nowait(message)

    async def _next(self) -> Message | None:
        """None at the end. Raises what the application raised."""
        message = await self._sent.get()
        if message["type"] != "end":
            return message
        await self._task
        return None


def _scope(request: httpx2.Request) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, request.url.port),
    }
