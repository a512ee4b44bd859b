"""Clients hang up at random, and the server is killed: with `Last-Event-ID` nothing is missed and nothing comes twice."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx2
from long_form import LONG
from real_server import RealServer, real_server

CLIENTS = 30
RESTARTS = 4 if LONG else 1
PROMPTS = 40 if LONG else 8
"""Between two restarts."""
THE_END = "the end"


class Follower:
    """One client: it follows the events, hanging up now and then, until it has seen the end."""

    def __init__(self, server: RealServer, number: int) -> None:
        self._url = f"{server.url}/event"
        self._parts = ("full", "delta")[number % 2]
        self._random = random.Random(number)
        self._cursor = "0"
        self._fields: dict[str, str] = {}
        self.connections = 0
        self.ids: list[int] = []
        self.texts: dict[str, str] = {}
        self.resyncs = 0
        self.ended = False

    async def follow(self) -> None:
        async with httpx2.AsyncClient(timeout=30) as client:
            while not self.ended:
                try:
                    await self._connection(client)
                except httpx2.TransportError:
                    await asyncio.sleep(0.02)  # the server is being started again

    async def _connection(self, client: httpx2.AsyncClient) -> None:
        self.connections += 1
        self._fields = {}
        left = self._random.randint(1, 80)
        headers = {"last-event-id": self._cursor}
        async with client.stream("GET", self._url, params={"parts": self._parts}, headers=headers) as response:
            async for line in response.aiter_lines():
                self._take(line)
                left -= 1
                if self.ended or not left:
                    return

    def _take(self, line: str) -> None:
        """An event counts when it is there whole, with the empty line at its end."""
        if line:
            name, _, value = line.partition(": ")
            self._fields[name] = value
            return
        fields, self._fields = self._fields, {}
        if "id" in fields:
            self._cursor = fields["id"]
            self.ids.append(int(self._cursor))
        self._see(json.loads(fields["data"]))

    def _see(self, event: dict[str, Any]) -> None:
        properties = event["properties"]
        match event["type"]:
            case "message.part.delta":
                self.texts[properties["partID"]] = self.texts.get(properties["partID"], "") + properties["delta"]
            case "message.part.updated" if "text" in properties["part"]:
                self.texts[properties["part"]["id"]] = properties["part"]["text"]
            case "session.created":
                self.ended = self.ended or properties["info"]["title"] == THE_END
            case "server.resync":
                self.resyncs += 1


async def test_nothing_is_missed_and_nothing_comes_twice(tmp_path: Path, figure: Any) -> None:
    with real_server(tmp_path) as server:
        followers = [Follower(server, number) for number in range(CLIENTS)]
        following = [asyncio.create_task(follower.follow()) for follower in followers]
        for restart in range(RESTARTS + 1):
            await prompt(server, PROMPTS)
            if restart < RESTARTS:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
        texts = await the_end(server)
        async with asyncio.timeout(60):
            await asyncio.gather(*following)
        reference = Follower(server, 0)
        await reference.follow()
    expected = sorted(set(reference.ids))
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
