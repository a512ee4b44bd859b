"""A client that does not read costs the server a bounded buffer, is cut off, may come back, and slows nobody."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
from over_sockets import listening
from running_app import RunningApp, running_app

from app.events.bus.base import Event
from app.events.bus.listener import STALLED_ABOVE

EVENT_BYTES = 100_000


async def connect_and_read_nothing(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client


async def until_listeners(app: RunningApp, count: int) -> None:
    async with asyncio.timeout(60):
        while sum(map(len, app.services.bus._listeners.values())) != count:
            await asyncio.sleep(0.01)


def publish(app: RunningApp, number: int) -> None:
    payload = json.dumps({"type": "test", "properties": {"number": number, "padding": "x" * EVENT_BYTES}}, separators=(",", ":"))
    app.services.bus.publish(Event("test", payload.encode(), directory=str(app.directory), journaled=False))


async def test_a_client_that_reads_nothing_is_cut_off_and_the_others_hear_everything(tmp_path: Path) -> None:
    count = 3 * STALLED_ABOVE // EVENT_BYTES
    async with running_app(tmp_path) as app, listening(app) as port:
        async with app.events() as reading:
            slow = await connect_and_read_nothing(port)
            await until_listeners(app, 2)
            for number in range(count):
                publish(app, number)
                await reading.until("test", count=number + 1)
            assert [event.properties["number"] for event in reading.of_type("test")] == list(range(count))
            await until_listeners(app, 1)
        slow.close()


async def test_a_client_that_was_cut_off_may_come_back(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, listening(app) as port:
        slow = await connect_and_read_nothing(port)
        await until_listeners(app, 1)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=180) as client:
            made = (await client.post("/session", json={"title": "T"})).json()
            for number in range(2 * STALLED_ABOVE // EVENT_BYTES):
                publish(app, number)
            await until_listeners(app, 0)
            async with client.stream("GET", "/event", headers={"last-event-id": "0"}) as again:
                async for line in again.aiter_lines():
                    if "session.created" in line:
                        assert made["id"] in line
                        break
        slow.close()
