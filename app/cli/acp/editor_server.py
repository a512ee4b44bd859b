"""The server that an editor's agent works with: it starts just after the agent's first answer, and its errors become errors of
the protocol. And the events of one directory, in their order, for all of its sessions that the editor has open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager

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


MAX_WAITING = 1000
"""Events that may wait for a slow editor, whose pipe just fills. The server disconnects a client that does not read."""


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
        self._waiting: asyncio.Queue[Json] = asyncio.Queue(MAX_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """From now on no event is missed. Raises RequestError."""
        events = self._server.events(self._directory)
        await anext(events)  # the greeting
        self._tasks = [asyncio.create_task(self._read(events)), asyncio.create_task(self._hand_on())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, events: AsyncIterator[Json]) -> None:
        async for event in events:
            await self._waiting.put(event)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Reports the failure, so that nothing waits for ever for events that do not come any more."""
        if task.cancelled():
            return
        for each in self._tasks:
            each.cancel()
        error = task.exception()
        failure = error if isinstance(error, RequestError) else RequestError(INTERNAL, f"The events cannot be read: {error}")
        self._lost(self._directory, failure)

    async def _hand_on(self) -> None:
        """Delivers all waiting events at once: deltas of a text that come while the editor takes one are joined."""
        while True:
            events = [await self._waiting.get()]
            while not self._waiting.empty():
                events.append(self._waiting.get_nowait())
            for event in joined(events):
                await self._deliver(event)


def joined(events: Iterable[Json]) -> list[Json]:
    """With successive deltas of one text joined."""
    found: list[Json] = []
    for event in events:
        last = found[-1] if found else None
        if last is not None and _is_delta(last) and _is_delta(event) and _delta_target(last) == _delta_target(event):
            text = last["properties"]["delta"] + event["properties"]["delta"]
            found[-1] = {**last, "properties": {**last["properties"], "delta": text}}
        else:
            found.append(event)
    return found


def _is_delta(event: Json) -> bool:
    return bool(event["type"] == "message.part.delta")


def _delta_target(event: Json) -> tuple[str, str]:
    return event["properties"]["partID"], event["properties"]["field"]
