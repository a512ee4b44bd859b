"""The client's side of an event stream."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2

PATIENCE = 60.0


@dataclass(frozen=True)
class Received:
    """One frame: its `id:` if it had one, as it came (`cursor`) and as a number, and its data."""

    id: int | None
    data: dict[str, Any]
    cursor: str | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The event itself, whichever of the two streams it came by."""
        return self.data.get("payload", self.data)

    @property
    def event_id(self) -> str:
        """What the event's JSON has."""
        return str(self.payload["id"])

    @property
    def type(self) -> str:
        return str(self.payload["type"])

    @property
    def properties(self) -> dict[str, Any]:
        return self.payload["properties"]


class EventReader:
    """Reads in the background into `seen`, all that came, in order; `characters` counts the stream's."""

    def __init__(self, response: httpx2.Response) -> None:
        self.seen: list[Received] = []
        self.ended = False
        self.characters = 0
        self._came = asyncio.Condition()
        self._task = asyncio.create_task(self._read(response))

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.seen]

    def of_type(self, event_type: str) -> list[Received]:
        return [event for event in self.seen if event.type == event_type]

    async def until(self, wanted: str | Callable[[Received], bool], *, count: int = 1) -> Received:
        """The first event (or the `count`-th) of a type, or that a condition holds for; those already seen count."""
        matches = (lambda event: event.type == wanted) if isinstance(wanted, str) else wanted

        await self.when(lambda: sum(map(matches, self.seen)) >= count or self.ended)
        matching = [event for event in self.seen if matches(event)]
        assert len(matching) >= count, f"the stream ended without {wanted}; there were {self.types}"
        return matching[count - 1]

    async def until_ended(self) -> None:
        await self.when(lambda: self.ended)

    async def when(self, condition: Callable[[], bool]) -> None:
        """Waits until something came that makes the condition true."""
        try:
            async with asyncio.timeout(PATIENCE), self._came:
                await self._came.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"what is waited for did not come; there were {self.types}") from None

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, response: httpx2.Response) -> None:
        try:
            await self._read_frames(response)
        finally:
            self.ended = True
            async with self._came:
                self._came.notify_all()

    async def _read_frames(self, response: httpx2.Response) -> None:
        cursor: str | None = None
        async for line in response.aiter_lines():
            self.characters += len(line) + 1
            if line.startswith("id:"):
                cursor = line[3:].strip()
            elif line.startswith("data:"):
                number = int(cursor) if cursor and cursor.isdigit() else None
                self.seen.append(Received(number, json.loads(line[5:]), cursor))
                cursor = None
                async with self._came:
                    self._came.notify_all()
