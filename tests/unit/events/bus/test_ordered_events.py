"""Events of several servers are delivered in the journal's order, each once and none left out, whatever is announced when."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from bus_parts import numbered

from app.events.bus.base import Event
from app.events.bus.shared import OrderedEvents


def event(seq: int) -> Event:
    return numbered(seq)


class Following:
    def __init__(self) -> None:
        self.journal: list[Event] = []
        self.delivered: list[int] = []
        self.reads = 0
        self.lost = 0
        self.events = OrderedEvents(lambda found: self.delivered.append(found.seq or 0), self._read, self._lose)
        self.events.poll_seconds = 0.05

    async def _read(self, after: int) -> Sequence[Event]:
        self.reads += 1
        return [found for found in self.journal if (found.seq or 0) > after]

    def _lose(self) -> None:
        self.lost += 1

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.delivered) < count:
                await asyncio.sleep(0.005)


@pytest.fixture
async def following() -> Following:
    made = Following()
    made.events.begin(0)
    return made


async def test_what_is_announced_in_order_is_delivered_at_once(following: Following) -> None:
    following.events.offer([event(1), event(2)])
    assert following.delivered == [1, 2] and following.reads == 0


async def test_an_event_waits_for_those_before_it(following: Following) -> None:
    following.events.offer([event(2)])
    assert following.delivered == []
    following.events.offer([event(1)])
    assert following.delivered == [1, 2]


async def test_what_nobody_announces_is_read_from_the_journal(following: Following) -> None:
    following.journal = [event(1), event(2)]
    task = asyncio.create_task(following.events.follow())
    await following.until(2)
    following.journal += [event(3), event(4)]
    following.events.offer([event(4)])
    await following.until(4)
    task.cancel()
    assert following.delivered == [1, 2, 3, 4]


async def test_a_hint_is_enough(following: Following) -> None:
    following.events.poll_seconds = 60
    following.journal = [event(1)]
    task = asyncio.create_task(following.events.follow())
    await asyncio.sleep(0)
    following.events.hint(1)
    await following.until(1)
    task.cancel()


async def test_what_the_journal_has_no_more_is_said_to_be_lost(following: Following) -> None:
    following.journal = [event(7)]
    await following.events.read()
    assert following.delivered == [7] and following.lost == 1


async def test_any_order_of_announcements_with_repetitions_and_losses_is_delivered_once_in_order(following: Following) -> None:
    rng = random.Random(1)
    following.journal = [event(seq) for seq in range(1, 301)]
    announced = [found for found in following.journal * 2 if rng.random() < 0.6]
    rng.shuffle(announced)
    task = asyncio.create_task(following.events.follow())
    for found in announced:
        following.events.offer([found])
        if rng.random() < 0.05:
            await asyncio.sleep(0)
    await following.until(300)
    task.cancel()
    assert following.delivered == list(range(1, 301)) and following.lost == 0
