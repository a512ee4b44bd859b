"""Visitors of a share link who all come at once: they need no password, and hold up nobody who works."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from long_form import LONG, SLACK
from real_server import MIB, RealServer, real_server

VISITORS = 100
PROMPTS = 200
TEXT = "lorem ipsum " * 850
"""Together 2 MB."""
ROUNDS = 9 if LONG else 3
MOST_DELAY = 0.3 * SLACK


async def long_conversation(client: httpx2.AsyncClient) -> str:
    """The path of its share link."""
    session = (await client.post("/session", json={"title": "Long"})).json()["id"]
    for _ in range(PROMPTS):
        prompt = {"noReply": True, "parts": [{"type": "text", "text": TEXT}]}
        assert (await client.post(f"/session/{session}/message", json=prompt)).status_code == 200
    link = (await client.post(f"/session/{session}/share")).json()["share"]["url"]
    return httpx2.URL(link).path


async def first_word(client: httpx2.AsyncClient) -> float:
    """Seconds from a prompt to the first word of its answer, in a new session."""
    session = (await client.post("/session", json={"title": "Short"})).json()["id"]
    async with client.stream("GET", "/event", params={"parts": "delta"}) as events:
        lines = events.aiter_lines()
        await anext(lines)
        began = time.perf_counter()
        prompt = asyncio.create_task(client.post(f"/session/{session}/message", json={"parts": [{"type": "text", "text": "Hi"}]}))
        async for line in lines:
            if line.startswith("data:") and is_word(json.loads(line[5:]), session):
                break
        seconds = time.perf_counter() - began
    assert (await prompt).status_code == 200
    return seconds


def is_word(event: dict[str, Any], session: str) -> bool:
    return event["type"] == "message.part.delta" and event["properties"]["sessionID"] == session


async def beside_visitors(client: httpx2.AsyncClient, server: RealServer, *paths: str) -> float:
    script = Path(__file__).parents[1] / "support" / "visitors.py"
    arguments = [str(script), str(server.port), str(VISITORS), *paths]
    visitors = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert visitors.stdin and visitors.stdout
    assert await visitors.stdout.readline() == b"ready\n"
    visitors.stdin.write(b"go\n")
    await visitors.stdin.drain()
    await asyncio.sleep(0.02)  # the visits come first, the prompt among them
    seconds = await first_word(client)
    assert int(await visitors.stdout.readline()) == VISITORS * len(paths)
    assert await visitors.wait() == 0
    return seconds


async def test_a_hundred_visitors_at_once_hold_no_prompt_up(tmp_path: Path, figure: Callable[[str], None]) -> None:
    with real_server(tmp_path) as server:
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client, asyncio.timeout(200):
            link = await long_conversation(client)
            alone = statistics.median([await first_word(client) for _ in range(5)])
            before = server.memory
            beside = [await beside_visitors(client, server, link, f"{link}/session") for _ in range(ROUNDS)]
            grown = server.memory - before
    figure(
        f"the first word alone after {alone * 1000:.0f} ms, beside {VISITORS} visitors of 2 MB after "
        f"{', '.join(f'{seconds * 1000:.0f}' for seconds in beside)} ms; memory +{max(grown, 0) / MIB:.0f} MiB"
    )
    assert statistics.median(beside) <= alone * SLACK + MOST_DELAY
    assert server.tracebacks() == []
