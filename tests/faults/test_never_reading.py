"""A client that opens the event stream and never reads: it costs a bounded amount of memory, is cut off, may come back, and slows
nobody."""

import asyncio
import json
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import httpx2
from long_form import LONG, SLACK
from real_server import MIB, RealServer, real_server

CHANGES = 1200 if LONG else 150
CHANGE_BYTES = 100_000
"""Together many times what may wait for one client."""
MOST_MEMORY = 64 * MIB
CUT_OFF_SECONDS = 45


def connect_and_read_nothing(server: RealServer) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client


async def changes(server: RealServer) -> tuple[float, float]:
    """Every change is awaited on another client's stream: the 50th and 99th percentile, in ms."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client, asyncio.timeout(100):
        session = (await client.post("/session", json={"title": "T"})).json()["id"]
        taken = []
        async with client.stream("GET", "/event") as response:
            lines = response.aiter_lines()
            for number in range(CHANGES):
                began = time.perf_counter()
                change = asyncio.create_task(
                    client.patch(f"/session/{session}", json={"title": f"{number} {'x' * CHANGE_BYTES}"})
                )
                async for line in lines:
                    if line.startswith("data:") and json.loads(line[5:])["properties"].get("info", {}).get(
                        "title", ""
                    ).startswith(f"{number} "):
                        break
                taken.append((time.perf_counter() - began) * 1000)
                await change
        await client.delete(f"/session/{session}")
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


def is_connected(server: RealServer, client: socket.socket) -> bool:
    port = client.getsockname()[1]
    return any(c.raddr and c.raddr.port == port and c.status == "ESTABLISHED" for c in server.process.net_connections())


async def test_a_client_that_never_reads(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path, OPENSESSION_MAX_JOURNAL_BYTES=str(10**9)) as server:
        await changes(server)
        before = server.memory
        alone_p50, alone_p99 = await changes(server)
        without = max(server.memory - before, 0)
        with connect_and_read_nothing(server) as idle:
            beside_p50, beside_p99 = await changes(server)
            grown = server.memory - before - without
            cut_off = await until_cut_off(server, idle) if LONG else None
        resumed = await resumes(server)
    figure(
        f"{CHANGES * CHANGE_BYTES / 1e6:.0f} MB of events: +{max(grown, 0) / MIB:.0f} MiB for the client, "
        f"others' p50 {alone_p50:.1f} → {beside_p50:.1f} ms, p99 {alone_p99:.1f} → {beside_p99:.1f} ms; "
        + (f"cut off {cut_off:.0f} s after; " if cut_off is not None else "")
        + f"resumed with {resumed}"
    )
    assert grown <= MOST_MEMORY
    assert beside_p99 <= SLACK * (2 * alone_p99 + 20)
    assert resumed == "session.created"


async def until_cut_off(server: RealServer, client: socket.socket) -> float:
    """Seconds; fails when it takes too long."""
    began = time.monotonic()
    async with asyncio.timeout(CUT_OFF_SECONDS):
        while is_connected(server, client):
            await asyncio.sleep(0.5)
    return time.monotonic() - began


async def resumes(server: RealServer) -> str:
    """The first event that a client of the cursor 0 is sent."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        async with client.stream("GET", "/event", headers={"last-event-id": "0"}) as response:
            types = []
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    types.append(json.loads(line[5:])["type"])
                if len(types) == 2:
                    break
    return types[1]
