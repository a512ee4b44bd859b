"""The server that an editor's agent works with: it starts just after the agent's first answer, and its errors become errors of
the protocol. And the events of one directory, in their order, for all of its sessions that the editor has open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing

import typer
from acp import RequestError

from app.api.client import ApiClient, Json

NOT_FOUND, LOGIN_NEEDED, INVALID, INTERNAL = -32002, -32000, -32602, -32603


def refusal(text: str, status: int) -> RequestError:
    """The protocol's error for a failed call of the API. `status`: its answer's; 0 without an answer."""
    known = {401: LOGIN_NEEDED, 404: NOT_FOUND}
    return RequestError(known.get(status) or (INVALID if 400 <= status < 500 else INTERNAL), text)


class EditorServer:
    def __init__(self, open_server: Callable[[], AbstractAsyncContextManager[ApiClient]]) -> None:
        self._open = open_server
        self._api: asyncio.Future[ApiClient] | None = None
        self._closing = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Returns at once."""
        if self._running is None:
            self._api = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._api), name="server of the editor")

    async def close(self) -> None:
        self._closing.set()
        if self._running is not None:
            await self._running

    async def _run(self, ready: asyncio.Future[ApiClient]) -> None:
        try:
            async with self._open() as api:
                api.refusal = refusal
                ready.set_result(api)
                await self._closing.wait()
        except Exception as error:
            if ready.done():
                raise
            reason = "its standard error says why" if isinstance(error, typer.Exit) else str(error)
            ready.set_exception(RequestError(INTERNAL, f"The server of opensession acp could not start: {reason}"))
            ready.exception()  # the editor may send no request

    async def api(self) -> ApiClient:
        """Waits until the server has started. This method and each call of the client that it returns raise RequestError."""
        self.start()
        assert self._api is not None
        return await asyncio.shield(self._api)


class DirectoryFeed:
    """`deliver` is given each event; `lost` is given, once, the reason why no more come."""

    def __init__(
        self,
        server: ApiClient,
        directory: str,
        deliver: Callable[[Json], Awaitable[None]],
        lost: Callable[[str, RequestError], None],
    ) -> None:
        self._server = server
        self._directory = directory
        self._deliver = deliver
        self._lost = lost
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """From now on no event is missed. Raises RequestError."""
        events = self._server.events(self._directory)
        await anext(events)  # the greeting
        self._reading = asyncio.create_task(self._read(events))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, events: AsyncGenerator[Json, None]) -> None:
        """The next event is read when the editor has taken this one. Reports a failure, so that nothing waits for ever for events
        that do not come any more."""
        try:
            async with aclosing(events):
                async for event in events:
                    await self._deliver(event)
        except RequestError as failure:
            self._lost(self._directory, failure)
        except Exception as error:  # noqa: BLE001  whatever it is, no more events come
            self._lost(self._directory, RequestError(INTERNAL, f"The events cannot be read: {error}"))
