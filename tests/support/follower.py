"""A client of several servers that follows the events: where its stream ends, it goes on at the next server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

SERVERS_OWN = ("server.connected", "server.heartbeat", "server.resync")


@dataclass(frozen=True)
class Heard:
    """`at` in time.monotonic()."""

    id: int
    event: dict[str, Any]
    at: float


class Follower:
    """`events` are those with an id, in the order in which they came; `texts` are the parts' texts as a client shows them.
    `pause`: seconds that it takes its time after each. `start`: the id of the first greeting, events after it are told."""

    def __init__(self, urls: Sequence[str], parts: str = "full", *, start: int | None = None, pause: float = 0.0) -> None:
        self.urls = list(urls)
        self.events: list[Heard] = []
        self.texts: dict[str, str] = {}
        self.first_texts: dict[str, float] = {}
        """When a part's first text was heard."""
        self.start, self.connections, self.resyncs = start, 0, 0
        self._parts, self._pause = parts, pause
        self._connected = asyncio.Event()
        self._fields: dict[str, str] = {}

    @property
    def cursor(self) -> int:
        return self.events[-1].id if self.events else self.start or 0

    async def follow(self) -> None:
        """Until it is cancelled."""
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(5, read=60)) as http:
            while True:
                try:
                    await self._connection(http, self.urls[0])
                except httpx2.HTTPError:
                    await asyncio.sleep(0.05)
                self.urls = [*self.urls[1:], self.urls[0]]

    @asynccontextmanager
    async def following(self) -> AsyncIterator["Follower"]:
        """From its first greeting on."""
        task = asyncio.create_task(self.follow())
        try:
            await self.connected()
            yield self
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended

    async def connected(self) -> None:
        async with asyncio.timeout(60):
            await self._connected.wait()

    async def _connection(self, http: httpx2.AsyncClient, url: str) -> None:
        self._fields = {}
        headers = {} if self.start is None else {"last-event-id": str(self.cursor)}
        query = {"ids": "true", "parts": self._parts}
        async with http.stream("GET", f"{url}/event", params=query, headers=headers) as response:
            response.raise_for_status()
            self.connections += 1
            async for line in response.aiter_lines():
                self._take(line)
                if self._pause and not line:
                    await asyncio.sleep(self._pause)

    def _take(self, line: str) -> None:
        """An event counts when it is there whole, with the empty line at its end."""
        if line:
            name, _, value = line.partition(": ")
            self._fields[name] = value
            return
        fields, self._fields = self._fields, {}
        if "data" in fields:
            self._see(int(fields["id"]) if "id" in fields else None, json.loads(fields["data"]))

    def _see(self, event_id: int | None, event: dict[str, Any]) -> None:
        if event["type"] in SERVERS_OWN:
            self._greeted(event_id, event["type"])
            return
        if event_id is not None:
            self.events.append(Heard(event_id, event, time.monotonic()))
        self._show(event["type"], event["properties"])

    def _greeted(self, event_id: int | None, kind: str) -> None:
        self.resyncs += kind == "server.resync"
        if self.start is None and event_id is not None:
            self.start = event_id
        self._connected.set()

    def _show(self, kind: str, values: dict[str, Any]) -> None:
        if kind == "message.part.delta" and values["field"] == "text":
            self._shows(values["partID"], self.texts.get(values["partID"], "") + values["delta"])
        elif kind == "message.part.updated" and "text" in values["part"]:
            self._shows(values["part"]["id"], values["part"]["text"])

    def _shows(self, part: str, text: str) -> None:
        if text:
            self.first_texts.setdefault(part, time.monotonic())
        self.texts[part] = text
