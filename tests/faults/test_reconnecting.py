"""Clients hang up at random, and the server is killed: with `Last-Event-ID` nothing is missed and nothing comes twice."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from follower import Follower
from long_form import LONG
from real_server import RealServer, real_server
from turns import until

CLIENTS = 30
RESTARTS = 4 if LONG else 1
PROMPTS = 40 if LONG else 8
"""Between two restarts."""
THE_END = "the end"


class HangsUp(httpx2.HTTPError):
    """As if the connection had broken."""


class Restless(Follower):
    """Follows the events from the first on, and hangs up now and then."""

    def __init__(self, server: RealServer, number: int) -> None:
        super().__init__([server.url], ("full", "delta")[number % 2], start=0)
        self._random = random.Random(number)
        self._left = self._random.randint(1, 80)

    def _take(self, line: str) -> None:
        super()._take(line)
        self._left -= 1
        if not self._left:
            self._left = self._random.randint(1, 80)
            raise HangsUp("has heard enough")

    @property
    def ids(self) -> list[int]:
        return [heard.id for heard in self.events]

    @property
    def is_at_the_end(self) -> bool:
        return any(THE_END in str(heard.event) for heard in self.events[-3:])


@asynccontextmanager
async def following(server: RealServer, count: int) -> AsyncIterator[list[Restless]]:
    """Until all have heard the end."""
    followers = [Restless(server, number) for number in range(count)]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(follower.following()) for follower in followers))
        yield followers
        await until(lambda: all(follower.is_at_the_end for follower in followers), "the end")


async def test_nothing_is_missed_and_nothing_comes_twice(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        async with following(server, CLIENTS) as followers:
            for restart in range(RESTARTS + 1):
                await prompt(server, PROMPTS)
                if restart < RESTARTS:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
            texts = await the_end(server)
            async with following(server, 1) as [reference]:
                pass
            expected = sorted(set(reference.ids))
            await until(lambda: all(follower.cursor >= expected[-1] for follower in followers), "what came behind the end")
    missed = sum(len(set(expected) - set(follower.ids)) for follower in followers)
    doubled = sum(len(follower.ids) - len(set(follower.ids)) for follower in followers)
    wrong = sum(follower.texts != texts for follower in followers)
    connections = sum(follower.connections for follower in followers)
    figure(
        f"{CLIENTS} clients, {connections} connections, {RESTARTS} kills, {len(expected)} events: "
        f"{missed} missed, {doubled} doubled, {wrong} wrong texts"
    )
    assert (missed, doubled, wrong) == (0, 0, 0)
    assert all(follower.ids == sorted(follower.ids) and not follower.resyncs for follower in followers)
    assert connections > 5 * CLIENTS


async def prompt(server: RealServer, count: int) -> None:
    """Half of the prompts are answered, the others are under way."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:
        sessions = [(await client.post("/session", json={"title": "T"})).json()["id"] for _ in range(4)]
        for number in range(count):
            body = {"parts": [{"type": "text", "text": "long 40"}]}
            way = "message" if number < count // 2 else "prompt_async"
            response = await client.post(f"/session/{sessions[number % 4]}/{way}", json=body)
            assert response.status_code in (200, 204)


async def the_end(server: RealServer) -> dict[str, str]:
    """Waits until all is answered, then tells the followers; the texts of all parts as they are stored."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client, asyncio.timeout(60):
        while (await client.get("/session/status")).json():
            await asyncio.sleep(0.05)
        texts = {}
        for session in (await client.get("/session")).json():
            for message in (await client.get(f"/session/{session['id']}/message")).json():
                texts |= {part["id"]: part["text"] for part in message["parts"] if "text" in part}
        await client.post("/session", json={"title": THE_END})
        return texts
