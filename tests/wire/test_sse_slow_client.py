"""A client that does not read costs the server a bounded buffer, is cut off, may come back, and slows nobody."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
from over_sockets import listening
from running_app import running_app
from turns import until

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


async def test_a_client_that_reads_nothing_is_cut_off_may_come_back_and_the_others_hear_everything(tmp_path: Path) -> None:
    count = 3 * STALLED_ABOVE // EVENT_BYTES
    async with running_app(tmp_path) as app, listening(app) as port:
        bus = app.services.bus
        async with app.events() as reading:
            slow = await connect_and_read_nothing(port)
            await until(lambda: bus.listeners() == 2, "the other listener")
            made = await app.create_session(title="T")
            for number in range(count):
                properties = {"number": number, "padding": "x" * EVENT_BYTES}
                payload = json.dumps({"type": "test", "properties": properties}, separators=(",", ":"))
                bus.publish(Event("test", payload.encode(), directory=str(app.directory), journaled=False))
                await reading.until("test", count=number + 1)
            assert [event.properties["number"] for event in reading.of_type("test")] == list(range(count))
            await until(lambda: bus.listeners() == 1, "the end of the slow one")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=180) as client:
            async with client.stream("GET", "/event", headers={"last-event-id": "0"}) as again:
                lines = again.aiter_lines()
                while "session.created" not in (line := await anext(lines)):
                    pass
                assert made["id"] in line
        slow.close()
