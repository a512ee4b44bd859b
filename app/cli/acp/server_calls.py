"""The server's API for the editor's agent: the server starts behind the first answer, its errors become the protocol's."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import typer
from acp import RequestError

from app.api.client.client import ApiClient, ApiRefused

Json = dict[str, Any]
OpenServer = Callable[[], AbstractAsyncContextManager[ApiClient]]

NOT_FOUND, LOGIN_NEEDED, INVALID, INTERNAL = -32002, -32000, -32602, -32603


class ServerCalls:
    """Each call waits until the server has started. Raises RequestError."""

    def __init__(self, open_server: OpenServer) -> None:
        self._open = open_server
        self._api: asyncio.Future[ApiClient] | None = None
        self._over = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Returns at once."""
        if self._running is None:
            self._api = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._api), name="server of the editor")

    async def close(self) -> None:
        self._over.set()
        if self._running is not None:
            await self._running

    async def _run(self, ready: asyncio.Future[ApiClient]) -> None:
        try:
            async with self._open() as api:
                ready.set_result(api)
                await self._over.wait()
        except Exception as error:
            if ready.done():
                raise
            said = "its standard error says why" if isinstance(error, typer.Exit) else str(error)
            ready.set_exception(RequestError(INTERNAL, f"The server of opensession acp could not start: {said}"))
            ready.exception()  # the editor may send no request

    async def api(self) -> ApiClient:
        self.start()
        assert self._api is not None
        return await asyncio.shield(self._api)

    async def get(self, path: str, /, **query: Any) -> Any:
        with _refusals():
            return await (await self.api()).get(path, **query)

    async def post(self, path: str, /, body: Any = None, **query: Any) -> Any:
        with _refusals():
            return await (await self.api()).post(path, body, **query)

    async def patch(self, path: str, /, body: Any, **query: Any) -> Any:
        with _refusals():
            return await (await self.api()).patch(path, body, **query)

    async def delete(self, path: str, /) -> Any:
        with _refusals():
            return await (await self.api()).delete(path)

    async def post_slow(self, path: str, /, body: Any, **query: Any) -> Any:
        """For requests that are answered when a turn is over."""
        with _refusals():
            return await (await self.api()).post_slow(path, body, **query)

    async def wait(self, path: str, begun: Callable[[], None]) -> Any:
        """Waits until the server has something to say, and returns it. `begun` is called when that wait has begun."""
        with _refusals():
            return await (await self.api()).wait(path, begun)

    async def events(self, directory: str) -> AsyncGenerator[Json, None]:
        with _refusals():
            async for event in (await self.api()).events(directory):
                yield event


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ApiRefused as refused:
        raise refusal(refused) from refused


def refusal(refused: ApiRefused) -> RequestError:
    known = {401: LOGIN_NEEDED, 404: NOT_FOUND}
    code = known.get(refused.status) or (INVALID if 400 <= refused.status < 500 else INTERNAL)
    return RequestError(code, str(refused))
