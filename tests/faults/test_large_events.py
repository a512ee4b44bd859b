"""Large events: a fast reader hears them all, and what a server keeps in memory for a replay does not grow with the replay."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
from long_form import LONG
from real_server import MIB, RealServer, real_server

IMAGE_BYTES = 8_500_000
COPIES, COPY_BYTES = (20, 2_000_000) if LONG else (6, 2_000_000)
"""Of a session that is forked: all are announced in one go."""
MISSED, MISSED_BYTES = (95, 1_000_000) if LONG else (20, 1_000_000)
MOST_FOR_A_REPLAY = 24 * MIB


def image(size: int) -> dict[str, str]:
    return {"type": "file", "mime": "image/png", "filename": "a.png", "url": f"data:image/png;base64,{'A' * size}"}


async def post(client: httpx2.AsyncClient, path: str, body: Any = None) -> Any:
    response = await client.post(path, json=body or {})
    assert response.status_code == 200, response.text
    return response.json()


async def tell(client: httpx2.AsyncClient, session_id: str, *parts: dict[str, str]) -> None:
    """Store a prompt that asks nothing."""
    await post(client, f"/session/{session_id}/message", {"noReply": True, "parts": list(parts)})


@asynccontextmanager
async def reading(client: httpx2.AsyncClient, **headers: str) -> AsyncIterator[AsyncIterator[tuple[int | None, dict[str, Any]]]]:
    """(id, event) of every frame, as they come."""

    async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int | None, dict[str, Any]]]:
        number = None
        async for line in lines:
            if line.startswith("id:"):
                number = int(line[3:])
            elif line.startswith("data:"):
                yield number, json.loads(line[5:])
                number = None

    async with asyncio.timeout(100), client.stream("GET", "/event", headers=headers) as response:
        yield events(response.aiter_lines())


async def until_created(events: AsyncIterator[tuple[int | None, dict[str, Any]]], title: str) -> list[dict[str, Any]]:
    """The events up to that of a session with this title; fails when the stream ends before it."""
    seen = []
    async for _, event in events:
        seen.append(event)
        if event["type"] == "session.created" and event["properties"]["info"]["title"] == title:
            return seen
    raise AssertionError(f"cut off after {[event['type'] for event in seen]}")


class Peak:
    """The most memory that a server takes while a block runs, beyond what it took before."""

    def __init__(self, server: RealServer) -> None:
        self._server, self._before = server, server.memory
        self.grown = 0
        self._stop = Event()

    def watch(self) -> None:
        while not self._stop.wait(0.005):
            self.grown = max(self.grown, self._server.memory - self._before)

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def memory_peak(server: RealServer) -> Iterator[Peak]:
    peak = Peak(server)
    watching = Thread(target=peak.watch)
    watching.start()
    try:
        yield peak
    finally:
        peak.stop()
        watching.join()


async def test_a_fast_reader_hears_what_is_announced_in_one_go(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client, reading(client) as events:
            assert (await anext(events))[1]["type"] == "server.connected"
            session = (await post(client, "/session", {"title": "T"}))["id"]
            began = time.monotonic()
            listening = asyncio.create_task(until_created(events, "marker"))
            await tell(client, session, image(IMAGE_BYTES))
            for _ in range(COPIES):
                await tell(client, session, image(COPY_BYTES))
            forked = (await post(client, f"/session/{session}/fork"))["id"]
            await post(client, "/session", {"title": "marker"})
            seen = await listening
            taken = time.monotonic() - began
        assert not server.tracebacks()
    sizes: dict[str, list[int]] = {session: [], forked: []}
    for event in seen:
        if event["type"] == "message.part.updated" and event["properties"]["part"]["type"] == "file":
            part = event["properties"]["part"]
            sizes[part["sessionID"]].append(len(part["url"]) - len(image(0)["url"]))
    assert sizes[session] == sizes[forked] == [IMAGE_BYTES, *COPIES * [COPY_BYTES]]
    figure(f"{2 * sum(sizes[session]) / 1e6:.0f} MB, half of it in one go, heard in {taken:.1f} s, not cut off")


async def fill_journal(server: RealServer) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        session = (await post(client, "/session", {"title": "T"}))["id"]
        for number in range(MISSED):
            await tell(client, session, {"type": "text", "text": f"{number} ".ljust(MISSED_BYTES, "x")})


async def replay(server: RealServer, marker: str, *, pause: float = 0.0) -> list[int]:
    """The ids of all events from the first on, up to a session that is created while the client reads."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client, reading(client, **{"last-event-id": "0"}) as events:
        assert (await anext(events))[1]["type"] == "server.connected"
        announcing = asyncio.create_task(announce_more(server, marker))
        ids = []
        async for number, event in events:
            if number is not None:
                ids.append(number)
                await asyncio.sleep(pause)
            if event["type"] == "session.created" and event["properties"]["info"]["title"] == marker:
                break
        await announcing
    return ids


async def announce_more(server: RealServer, marker: str) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        for number in range(20):
            await post(client, "/session", {"title": f"meanwhile {number} {'x' * 100_000}"})
        await post(client, "/session", {"title": marker})


def ask_and_read_nothing(server: RealServer) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 0\r\n\r\n")
    return client


async def test_a_replay_costs_little_memory_however_long_it_is(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        await fill_journal(server)
        with memory_peak(server) as reader:
            ids = await replay(server, "first")
        with memory_peak(server) as slow_reader:
            slow_ids = await replay(server, "second", pause=0.02)
        with memory_peak(server) as nobody:
            with ask_and_read_nothing(server):
                await announce_more(server, "third")
                await asyncio.sleep(1)
        assert not server.tracebacks()
    for seen in (ids, slow_ids):
        assert seen == list(range(seen[0], seen[0] + len(seen))) and seen[0] <= 2
    figure(
        f"replay of {MISSED * MISSED_BYTES / 1e6:.0f} MB: +{reader.grown / MIB:.0f} MiB for a client that reads, "
        f"+{slow_reader.grown / MIB:.0f} MiB for one that pauses, +{nobody.grown / MIB:.0f} MiB for one that never reads; "
        f"{len(ids)} events, none missed, none twice"
    )
    assert max(reader.grown, slow_reader.grown, nobody.grown) <= MOST_FOR_A_REPLAY
