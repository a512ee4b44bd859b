"""The app of this process behind the real HTTP server, limits and all, for what only real connections show."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
from running_app import RunningApp

from app.http_server import http_server


@asynccontextmanager
async def listening(app: RunningApp) -> AsyncIterator[int]:
    """Gives the port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(1024)
    server = http_server(app.fastapi, app.fastapi.state.server.settings)
    server.config.lifespan = "off"
    server.config.timeout_graceful_shutdown = 1
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield bound.getsockname()[1]
    finally:
        app.services.bus.close()
        server.should_exit = True
        await task
        bound.close()


@asynccontextmanager
async def clients(app: RunningApp, count: int) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """Each with connections of its own."""
    async with listening(app) as port, AsyncExitStack() as stack:
        made = [httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) for _ in range(count)]
        yield [await stack.enter_async_context(client) for client in made]
