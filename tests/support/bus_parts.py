"""A text that streams on a bus, and what a client of the bus hears."""

import asyncio
import json
from types import MappingProxyType
from typing import Any

from app.events.bus.base import Event, PartDelta
from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus


def payloads(written: bytes | None) -> list[Any]:
    """Of an event without properties its name or number, of others all."""
    assert written is not None
    lines = [line.removeprefix("data: ") for line in written.decode().split("\n") if line.startswith("data: ")]
    return [_name(json.loads(line)) for line in lines]


def _name(sent: dict[str, Any]) -> Any:
    if "payload" in sent:
        return {**sent, "payload": _name(sent["payload"])}
    if sent["properties"] != {}:
        return sent
    return int(sent["type"]) if sent["type"].isdigit() else sent["type"]


async def heard(listener: Listener) -> list[Any]:
    """What waits, as far as it comes in one piece."""
    async with asyncio.timeout(60):
        return payloads(await anext(aiter(listener)))


async def has_ended(listener: Listener) -> bool:
    """With nothing that waits."""
    async with asyncio.timeout(60):
        return await listener.take() is None


async def written(listener: Listener) -> list[bytes]:
    """All that waits, in its pieces. Closes the listener."""
    listener.close()
    async with asyncio.timeout(60):
        return [piece async for piece in listener]


def named(name: str, properties: Any = MappingProxyType({}), **where: Any) -> Event:
    payload = json.dumps({"type": name, "properties": dict(properties)}, separators=(",", ":"))
    return Event(name, payload.encode(), **{"session_id": "ses_1", "directory": "/d", **where})


class Text:
    """A part whose text grows on a bus."""

    def __init__(self, bus: MemoryBus, part_id: str = "prt_1", session_id: str = "ses_1") -> None:
        self._bus, self._part_id, self._session_id = bus, part_id, session_id
        self.text = ""

    def gain(self, text: str) -> None:
        self.text += text
        part = json.dumps({"id": self._part_id, "text": self.text}).encode()
        self._bus.publish_delta(PartDelta("/d", self._session_id, "msg_1", self._part_id, text, len(self.text), lambda: part))


def gained(frames: list[Any], part_id: str = "prt_1") -> str:
    """The text that delta frames, or the deltas of whole frames, add up to."""
    texts = []
    for frame in frames:
        properties = frame["properties"]
        if properties.get("partID", properties.get("part", {}).get("id")) == part_id:
            texts.append(properties.get("delta", ""))
    return "".join(texts)


def numbered(seq: int) -> Event:
    return named(str(seq), seq=seq)
