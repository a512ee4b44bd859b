"""The bus of several servers: the events of all in the journal's order, each once, and what streams on another as it is there."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import orjson
import pytest
from bus_parts import heard, named
from bus_parts import numbered as event
from polling import until

from app.events.bus.base import Event, PartDelta
from app.events.bus.listener import Listener
from app.events.bus.redis_link import RedisLink
from app.events.bus.shared import OrderedEvents, RemoteParts, SharedBus


class Following(OrderedEvents):
    def __init__(self) -> None:
        self.journal: list[Event] = []
        self.delivered: list[int] = []
        self.reads = self.lost = 0
        super().__init__(lambda found: self.delivered.append(found.seq or 0), self.read_journal, self.lose)
        self.poll_seconds = 0.05

    async def read_journal(self, after: int) -> Sequence[Event]:
        self.reads += 1
        return [found for found in self.journal if (found.seq or 0) > after]

    def lose(self) -> None:
        self.lost += 1

    async def until(self, count: int) -> None:
        await until(lambda: len(self.delivered) >= count)


@pytest.fixture
async def events() -> Following:
    made = Following()
    made.begin(0)
    return made


@pytest.fixture
async def following(events: Following) -> AsyncIterator[Following]:
    """It reads what nobody announces."""
    task = asyncio.create_task(events.follow())
    yield events
    task.cancel()


async def test_an_event_is_delivered_at_once_or_waits_for_those_before_it(events: Following) -> None:
    events.offer([event(1), event(2)])
    assert events.delivered == [1, 2]
    events.offer([event(4)])
    assert events.delivered == [1, 2]
    events.offer([event(3)])
    assert events.delivered == [1, 2, 3, 4] and events.reads == 0


async def test_what_nobody_announces_is_read_from_the_journal(following: Following) -> None:
    following.journal = [event(1), event(2)]
    await following.until(2)
    following.journal += [event(3), event(4)]
    following.offer([event(4)])
    await following.until(4)
    assert following.delivered == [1, 2, 3, 4]


async def test_a_hint_is_enough(events: Following) -> None:
    events.poll_seconds = 60
    events.journal = [event(1)]
    task = asyncio.create_task(events.follow())
    await asyncio.sleep(0)
    events.hint(1)
    await events.until(1)
    task.cancel()


async def test_what_the_journal_has_no_more_is_said_to_be_lost(events: Following) -> None:
    events.journal = [event(7)]
    await events.read()
    assert events.delivered == [7] and events.lost == 1


async def test_any_order_of_announcements_with_repetitions_and_losses_is_delivered_once_in_order(following: Following) -> None:
    rng = random.Random(1)
    following.journal = [event(seq) for seq in range(1, 301)]
    announced = [found for found in following.journal * 2 if rng.random() < 0.6]
    rng.shuffle(announced)
    for found in announced:
        following.offer([found])
        if rng.random() < 0.05:
            await asyncio.sleep(0)
    await following.until(300)
    assert following.delivered == list(range(1, 301)) and following.lost == 0


Growth = tuple[PartDelta, str | None, int]


def whole(text: str) -> str:
    part = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": text, "time": {"start": 1}}
    return orjson.dumps(part).decode()


def growth(text: str, size: int, whole_part: str | None = None, generation: int = 1, after: int = 0) -> Growth:
    """As it comes from another server."""
    render = partial(str.encode, whole_part or "{}")
    delta = PartDelta("/d", "ses_1", "msg_1", "prt_1", text, size, render, generation=generation)
    return delta, whole_part, after


HEL, LO = growth("Hel", 3, whole("Hel")), growth("lo", 5)


@pytest.fixture
def parts() -> RemoteParts:
    return RemoteParts()


def shown(announced: PartDelta | Event | None) -> dict[str, Any]:
    assert announced is not None
    if isinstance(announced, Event):
        return orjson.loads(announced.payload)["properties"]["part"]
    return orjson.loads(announced.render())


def test_deltas_are_put_together_each_as_of_its_moment(parts: RemoteParts) -> None:
    first, second = parts.apply(*HEL), parts.apply(*LO)
    assert isinstance(first, PartDelta) and isinstance(second, PartDelta)
    assert [(each.text, shown(each)["text"]) for each in (first, second)] == [("Hel", "Hel"), ("lo", "Hello")]
    assert list(shown(second)) == list(orjson.loads(whole("")))
    progress = parts.apply(*growth("", 0, whole("tool")))
    assert isinstance(progress, PartDelta) and progress.text == "" and shown(progress)["text"] == "tool"


@pytest.mark.parametrize("known", [True, False])
def test_after_something_was_missed_the_part_is_shown_whole(parts: RemoteParts, known: bool) -> None:
    if known:
        parts.apply(*HEL)
    assert parts.apply(*growth("there", 11)) is None
    announced = parts.apply(*growth("!", 12, whole("Hello there!")))
    assert isinstance(announced, Event) and shown(announced)["text"] == "Hello there!"
    assert isinstance(parts.apply(*growth(" On", 15)), PartDelta)


def test_what_an_older_generation_says_is_dropped(parts: RemoteParts) -> None:
    parts.apply(*growth("New", 3, whole("New"), generation=2))
    assert parts.apply(*growth(" old", 7, whole("New old"), generation=1)) is None


def test_streaming_parts_are_those_that_have_not_ended(parts: RemoteParts) -> None:
    parts.apply(*HEL)
    found = parts.streaming("/d")
    assert found.known == {"prt_1": 3} and [shown(one)["text"] for one in found.events] == ["Hel"]
    assert parts.streaming("/other").events == []
    parts.ended("prt_1", 7)
    assert parts.streaming("/d").events == []


@pytest.mark.parametrize("ended", ["prt_1", "msg_1", "ses_1"])
@pytest.mark.parametrize("known", [True, False])
def test_what_was_said_before_the_end_and_comes_behind_it_is_dropped(parts: RemoteParts, ended: str, known: bool) -> None:
    if known:
        parts.apply(*HEL[:2], 6)
    parts.ended(ended, 7)
    late = [growth("Hello", 5, whole("Hello"), after=6), growth("lo", 5, whole("Hello"), after=6), growth("", 0, whole("tool"))]
    assert [parts.apply(*each) for each in late] == [None, None, None]
    assert parts.streaming("/d").events == []
    assert isinstance(parts.apply(*growth("", 0, whole("progress"), after=7)), PartDelta)


@pytest.mark.parametrize("again", [growth("Hello", 5, whole("Hello")), LO, HEL])
def test_what_comes_twice_is_shown_once(parts: RemoteParts, again: Growth) -> None:
    for each in (HEL, LO):
        parts.apply(*each)
    assert parts.apply(*again) is None
    assert shown(parts.apply(*growth("!", 6)))["text"] == "Hello!"


async def test_clients_hear_all_events_and_plugins_those_of_their_server() -> None:
    journal: list[Event] = []

    async def identity() -> str:
        return "1"

    async def head() -> int:
        return len(journal)

    async def after(cursor: int) -> Sequence[Event]:
        return journal[cursor:]

    bus = SharedBus(None, identity, head, after)
    await bus.start()
    try:
        client, plugin = Listener(bus, "/d"), Listener(bus.own, "/d", keeps_open=False, user=None)
        journal += [named(name, {"sessionID": "ses_1"}, seq=seq) for seq, name in enumerate(("theirs", "ours"), start=1)]
        bus.publish(journal[1])
        shown = await heard(client)
        while len(shown) < 2:
            shown += await heard(client)
        assert [each["type"] for each in shown] == ["theirs", "ours"]
        assert [each["type"] for each in await heard(plugin)] == ["ours"]
    finally:
        await bus.stop()


async def test_a_part_that_cannot_be_rendered_keeps_no_later_one_from_other_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[Any]()
    monkeypatch.setattr(RedisLink, "start", lambda link: None)
    monkeypatch.setattr(RedisLink, "send", lambda link, item: sent.append(item))

    async def number() -> Any:
        return 1

    async def nothing_after(_: int) -> Sequence[Event]:
        return []

    bus = SharedBus("redis://none", number, number, nothing_after)
    await bus.start()
    try:
        async with asyncio.timeout(10):
            await until(bus.own.listeners)
            bus.publish_delta(HEL[0]._replace(render=lambda: "\ud800".encode()))
            bus.publish_delta(HEL[0]._replace(part_id="prt_2"))
            await until(lambda: len(sent) >= 2)
        assert [(fields["part_id"], part) for _, fields, part, _ in sent] == [("prt_1", None), ("prt_2", HEL[1])]
    finally:
        await bus.stop()


async def test_who_comes_back_is_given_no_part_whose_end_the_journal_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That end may not have come here yet."""
    links, journal = list[RedisLink](), list[Event]()
    monkeypatch.setattr(RedisLink, "start", lambda link: links.append(link))

    async def number() -> Any:
        return 0

    async def after(cursor: int) -> Sequence[Event]:
        return journal[cursor:]

    bus = SharedBus("redis://none", number, number, after)
    await bus.start()
    try:
        links[0]._receive([2, {**HEL[0]._asdict(), "render": None}, HEL[1], 0])
        assert (await bus.streaming("/d", 0)).known == {"prt_1": 3}
        journal.append(named("message.part.updated", {"part": orjson.loads(whole("Hello"))}, seq=1))
        assert (await bus.streaming("/d", 1)).known == {}
    finally:
        await bus.stop()


async def test_text_whose_end_was_read_from_the_journal_already_is_not_shown_again() -> None:
    """This server's own: its commit may be read from the journal before its writer hears of it."""
    end = named("message.part.updated", {"part": orjson.loads(whole("Hel"))}, seq=1)

    async def number() -> Any:
        return 0

    async def after(cursor: int) -> Sequence[Event]:
        return [end][cursor:]

    bus = SharedBus(None, number, number, after)
    await bus.start()
    try:
        client = Listener(bus, "/d", deltas=True)
        assert [each["type"] for each in await heard(client)] == ["message.part.updated"]
        bus.publish_delta(HEL[0])
        bus.publish(end)
        bus.publish_delta(growth("", 0, whole("progress"))[0])
        (shown,) = await heard(client)
        assert shown["properties"]["part"]["text"] == "progress"
    finally:
        await bus.stop()
