"""Large events: a fast reader hears them all, and what a server keeps in memory for a replay does not grow with the replay."""

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import httpx2
from follower import Follower
from long_form import LONG
from real_server import MIB, RealServer, forget_peak, peak_memory, real_server
from turns import until

IMAGE_BYTES = 8_500_000
COPIES, COPY_BYTES = (20, 2_000_000) if LONG else (6, 2_000_000)
"""Of a session that is forked: all are announced in one go."""
MISSED, MISSED_BYTES = (95, 1_000_000) if LONG else (20, 1_000_000)
MAX_FOR_A_REPLAY = 24 * MIB


def image(size: int) -> dict[str, str]:
    return {"type": "file", "mime": "image/png", "filename": "a.png", "url": f"data:image/png;base64,{'A' * size}"}


async def post(client: httpx2.AsyncClient, path: str, body: Any = None) -> Any:
    response = await client.post(path, json=body or {})
    assert response.status_code == 200, response.text
    return response.json()


async def tell(client: httpx2.AsyncClient, session_id: str, *parts: dict[str, str]) -> None:
    """Store a prompt that asks nothing."""
    await post(client, f"/session/{session_id}/message", {"noReply": True, "parts": list(parts)})


def has_heard(follower: Follower, title: str) -> bool:
    made = (heard.event["properties"]["info"] for heard in follower.events[-30:] if heard.event["type"] == "session.created")
    return any(info["title"] == title for info in made)


async def test_a_fast_reader_hears_what_is_announced_in_one_go(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        follower = Follower([server.url])
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client, follower.following():
            session = (await post(client, "/session", {"title": "T"}))["id"]
            began = time.monotonic()
            for size in (IMAGE_BYTES, *COPIES * [COPY_BYTES]):
                await tell(client, session, image(size))
            forked = (await post(client, f"/session/{session}/fork"))["id"]
            await post(client, "/session", {"title": "marker"})
            await until(lambda: has_heard(follower, "marker"), "the end")
            taken = time.monotonic() - began
        assert not server.tracebacks() and follower.connections == 1
    sizes: dict[str, list[int]] = {session: [], forked: []}
    for event in (heard.event for heard in follower.events):
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
    async with Follower([server.url], start=0, pause=pause).following() as follower:
        await announce_more(server, marker)
        await until(lambda: has_heard(follower, marker), "the end")
    assert follower.connections == 1
    return [heard.id for heard in follower.events]


async def announce_more(server: RealServer, marker: str) -> None:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        for number in range(20):
            await post(client, "/session", {"title": f"meanwhile {number} {'x' * 100_000}"})
        await post(client, "/session", {"title": marker})


async def read_nothing(server: RealServer) -> None:
    """Of what was asked for."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /event HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 0\r\n\r\n")
        await announce_more(server, "third")
        await asyncio.sleep(1)


async def test_a_replay_costs_little_memory_however_long_it_is(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        await fill_journal(server)
        grown = []
        for reads in (replay(server, "first"), replay(server, "second", pause=0.02), read_nothing(server)):
            forget_peak(server.process)
            before = server.memory
            seen = await reads
            grown.append(peak_memory(server.process) - before)
            if seen is not None:
                ids = seen
                assert ids == list(range(ids[0], ids[0] + len(ids))) and ids[0] <= 2
        assert not server.tracebacks()
    reader, slow_reader, nobody = (each / MIB for each in grown)
    figure(
        f"replay of {MISSED * MISSED_BYTES / 1e6:.0f} MB: +{reader:.0f} MiB for a client that reads, +{slow_reader:.0f} MiB for "
        f"one that pauses, +{nobody:.0f} MiB for one that never reads; {len(ids)} events, none missed, none twice"
    )
    assert max(grown) <= MAX_FOR_A_REPLAY
