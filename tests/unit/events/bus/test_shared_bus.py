"""The bus of several servers: clients of each hear the events of all, plugins those of their own server."""

from collections.abc import AsyncIterator, Sequence

import pytest
from bus_parts import heard, named

from app.events.bus.base import Event
from app.events.bus.listener import Listener
from app.events.bus.shared import SharedBus


def event(name: str, seq: int) -> Event:
    return named(name, {"sessionID": "ses_1"}, seq=seq)


class Journal:
    def __init__(self) -> None:
        self.events: list[Event] = []

    async def identity(self) -> str:
        return "1"

    async def head(self) -> int:
        return len(self.events)

    async def after(self, cursor: int) -> Sequence[Event]:
        return self.events[cursor:]


@pytest.fixture
async def journal() -> Journal:
    return Journal()


@pytest.fixture
async def bus(journal: Journal) -> AsyncIterator[SharedBus]:
    made = SharedBus(None, journal.identity, journal.head, journal.after)
    await made.start()
    yield made
    await made.stop()


async def test_clients_hear_all_events_and_plugins_those_of_their_server(bus: SharedBus, journal: Journal) -> None:
    client, plugin = Listener(bus, "/d"), Listener(bus.own, "/d", keeps_open=False, user=None)
    journal.events += [event("theirs", 1), event("ours", 2)]
    bus.publish(journal.events[1])
    shown = await heard(client)
    while len(shown) < 2:
        shown += await heard(client)
    assert [each["type"] for each in shown] == ["theirs", "ours"]
    assert [each["type"] for each in await heard(plugin)] == ["ours"]
