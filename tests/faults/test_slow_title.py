"""A title model that takes its time: answers do not wait for it, and its titles are not lost."""

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

from killable import Client, Servers
from model_server import ModelServer, model_server
from turns import texts


async def untitled(servers: Servers, client: Client, model: ModelServer) -> tuple[str, threading.Event]:
    """A session whose title is being made, until the event is set."""
    gate = threading.Event()
    model.title = [gate, model.TITLE]
    session = await client.session()
    assert texts(await client.prompt(session)) == ["ok"]
    async with asyncio.timeout(20):
        while not model.title_requests:
            await asyncio.sleep(0.01)
    return session, gate


async def title_of(client: Client, session: str) -> str:
    found: dict[str, Any] = await client.get(f"/session/{session}")
    return str(found["title"])


async def test_a_server_that_stops_waits_for_a_title(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with model_server() as model:
        servers.configure(model.config())
        async with servers.start() as client:
            session, gate = await untitled(servers, client, model)
            client.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                while (await client.http.get("/global/health")).status_code != 503:
                    await asyncio.sleep(0.02)
            gate.set()
            await client.ended()
        async with servers.start() as client:
            assert await title_of(client, session) == model.TITLE
    assert len(model.title_requests) == 1 and "Traceback" not in servers.log
