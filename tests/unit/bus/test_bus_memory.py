"""Who hears what, in which order, and how long the bus waits for one who does not read."""

import asyncio
import json
import time
from typing import Any

import pytest
from storage_parts import delta, event

from app.bus.base import ENDED, Event, PartDelta
from app.bus.memory import DISCONNECT_ABOVE, MERGE_ABOVE, Listener, MemoryBus


def payloads(written: bytes | None) -> list[Any]:
    assert written is not None
    lines = [line.removeprefix("data: ") for line in written.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


async def heard(listener: Listener) -> list[Any]:
    async with asyncio.timeout(5):
        return payloads(await listener.next())


def named(name: str, **where: Any) -> Event:
    return event(f'"{name}"', **where)


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


async def test_a_listener_hears_its_directory_and_a_global_one_everything() -> None:
    bus = MemoryBus()
    here, everywhere = bus.subscribe("/d"), bus.subscribe(None)
    for name, directory in (("here", "/d"), ("there", "/e"), ("server", None)):
        bus.publish(named(name, directory=directory))
    assert await heard(here) == ["here"]
    assert [said["payload"] for said in await heard(everywhere)] == ["here", "there", "server"]


@pytest.mark.parametrize("deltas", [False, True])
async def test_what_streamed_before_an_event_of_the_session_is_sent_before_it(deltas: bool) -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=deltas)
    text = Text(bus)
    for piece in ("Hel", "lo ", "there"):
        text.gain(piece)
    bus.publish(Event(b'{"type":"end","properties":{}}', "/d", "ses_1"))
    frames = await heard(listener)
    assert gained(frames[:-1]) == "Hello there" and frames[-1]["type"] == "end"


async def test_an_event_of_another_session_flushes_nothing() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    text = Text(bus)
    text.gain("a")
    text.gain("b")
    bus.publish(Event(b'{"type":"end","properties":{}}', "/d", "ses_2"))
    assert gained(await heard(listener)) == "a"


async def test_delta_listeners_get_only_what_a_part_gained() -> None:
    bus = MemoryBus()
    whole, gains = bus.subscribe("/d"), bus.subscribe("/d", deltas=True)
    Text(bus).gain("Hello")
    assert [frame["type"] for frame in await heard(whole)] == ["message.part.updated"]
    [frame] = await heard(gains)
    assert frame["type"] == "message.part.delta" and "part" not in frame["properties"]


async def test_delta_listeners_hear_of_progress_that_is_no_text() -> None:
    bus = MemoryBus()
    gains = bus.subscribe("/d", deltas=True)
    Text(bus).gain("")
    assert [frame["type"] for frame in await heard(gains)] == ["message.part.updated"]


async def test_nothing_is_rendered_when_nobody_listens() -> None:
    def fail() -> bytes:
        raise AssertionError("rendered for nobody")

    bus = MemoryBus()
    bus.subscribe("/elsewhere")
    bus.publish_delta(PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, fail))


async def test_a_frame_is_made_once_for_all_listeners() -> None:
    made = []

    def render() -> bytes:
        made.append(1)
        return b"{}"

    bus = MemoryBus()
    listeners = [bus.subscribe("/d") for _ in range(50)]
    bus.publish_delta(PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, render))
    written = [await listener.next() for listener in listeners]
    assert len(made) == 1 and len(set(written)) == 1


async def test_a_slow_listener_has_its_part_frames_merged_and_loses_no_text() -> None:
    bus = MemoryBus()
    slow = bus.subscribe("/d")
    texts = [Text(bus, "prt_1"), Text(bus, "prt_2", "ses_2")]
    sent = 0
    for number in range(40):
        for text in texts:
            text.gain(f"{number:05}" * 4000)
            bus.flush(f"ses_{1 if text is texts[0] else 2}")
            sent += len(text.text)
    assert sent > 2 * MERGE_ABOVE
    frames = await heard(slow)
    assert len(frames) < 20
    assert gained(frames, "prt_1") == texts[0].text and gained(frames, "prt_2") == texts[1].text
    assert not slow.fell_behind


async def test_merged_frames_stay_between_the_events_around_them() -> None:
    bus = MemoryBus()
    slow = bus.subscribe("/d", deltas=True)
    text = Text(bus)
    for number in range(3):
        bus.publish(Event(b'{"type":"%d","properties":{}}' % number, "/d", "ses_1"))
        for _ in range(4):
            text.gain("x" * (MERGE_ABOVE // 8))
            bus.flush("ses_1")
    types = [frame["type"] for frame in await heard(slow)]
    assert [name for name in types if name.isdigit()] == ["0", "1", "2"]
    assert len(types) < 12


async def test_a_listener_that_reads_nothing_is_cut_off_and_holds_nobody_up() -> None:
    bus = MemoryBus()
    stuck, reading = bus.subscribe("/d"), bus.subscribe("/d")
    big = b'"%b"' % (b"x" * 1_000_000)
    for _ in range(DISCONNECT_ABOVE // 1_000_000 + 1):
        bus.publish(Event(big, "/d", "ses_1"))
        assert len(await heard(reading)) == 1
    assert stuck.fell_behind and await stuck.next() is None
    bus.publish(Event(b'"more"', "/d", "ses_1"))
    assert await heard(reading) == ["more"]


async def test_waiting_for_a_listener_costs_little_however_much_waits() -> None:
    bus = MemoryBus()
    stuck = bus.subscribe("/d")
    began = time.process_time()
    while not stuck.fell_behind:
        bus.publish(Event(b'"%b"' % (b"x" * 400), "/d", "ses_1"))
    assert time.process_time() - began < 1


async def test_a_closed_listener_gets_what_waited_then_the_end() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d")
    bus.publish(named("last"))
    listener.close()
    bus.publish(named("too late"))
    assert await heard(listener) == ["last"]
    assert await listener.next() is None


async def test_a_disposed_directory_ends_its_streams_and_no_other() -> None:
    bus = MemoryBus()
    here, gains, there, everywhere = (
        bus.subscribe("/d"),
        bus.subscribe("/d", deltas=True),
        bus.subscribe("/e"),
        bus.subscribe(None),
    )
    bus.disconnect("/d")
    assert await here.next() is None and await gains.next() is None
    bus.publish(named("on", directory="/e"))
    assert await heard(there) == ["on"] and len(await heard(everywhere)) == 1


async def test_closing_the_bus_ends_all_streams() -> None:
    bus = MemoryBus()
    listeners = [bus.subscribe("/d"), bus.subscribe(None, deltas=True)]
    bus.close()
    assert [await listener.next() for listener in listeners] == [None, None]


# What a client that comes back has been sent already comes no second time.


def numbered(seq: int) -> Event:
    return Event(b'"%d"' % seq, "/d", "ses_1", True, seq)


async def test_events_that_were_replayed_are_not_sent_again() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d")
    for seq in (5, 6, 7):
        bus.publish(numbered(seq))
    listener.skip(6, {})
    bus.publish(numbered(8))
    bus.publish(Event(b'"passing"', "/d", durable=False))
    assert await heard(listener) == ["7", "8", "passing"]


@pytest.mark.parametrize(("known", "new"), [(0, "Hello there"), (3, "lo there"), (5, " there"), (10, "e"), (11, ""), (99, "")])
async def test_of_a_part_that_was_sent_as_it_stood_only_what_it_gained_since_is_sent(known: int, new: str) -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    text = Text(bus)
    for piece in ("Hel", "lo"):
        text.gain(piece)
        bus.flush("ses_1")
    listener.skip(0, {"prt_1": known})
    text.gain(" there")
    bus.publish(named("end", durable=False))
    frames = await heard(listener)
    assert gained(frames[:-1]) == new


async def test_a_frame_that_was_merged_across_the_known_length_is_cut() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    text = Text(bus)
    text.gain("Hel")
    text.gain("lo")
    listener.skip(0, {"prt_1": 5})
    text.gain(" you")
    bus.publish(named("end", durable=False))
    assert gained((await heard(listener))[:-1]) == " you"


async def test_what_is_on_its_way_of_a_part_that_has_ended_does_not_come_after_its_end() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    Text(bus).gain("Hello")
    bus.flush("ses_1")
    bus.publish(numbered(5))
    listener.skip(5, {})
    bus.publish(numbered(6))
    assert await heard(listener) == ["6"]


@pytest.mark.parametrize("text", ["", "lo"])
async def test_nothing_more_is_sent_of_a_part_whose_last_event_was_replayed(text: str) -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d")
    listener.skip(5, {"prt_1": ENDED})
    Text(bus).gain(text)
    bus.publish(numbered(5))
    bus.publish(numbered(6))
    assert await heard(listener) == ["6"]


async def test_other_parts_are_not_cut() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    listener.skip(0, {"prt_other": 100})
    Text(bus).gain("Hello")
    assert gained(await heard(listener)) == "Hello"


async def test_deltas_of_a_session_are_heard_in_order_beside_another_session() -> None:
    bus = MemoryBus()
    listener = bus.subscribe("/d", deltas=True)
    bus.publish_delta(delta("a", size=1))
    bus.publish_delta(delta("other", "ses_2", "prt_2", size=5))
    bus.publish_delta(delta("b", size=2))
    bus.flush("ses_1")
    assert gained(await heard(listener)) == "ab"
