"""What waits for one client: how much of it may, how it is given out, and what a client that comes back is sent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from bus_parts import Text, gained, has_ended, heard, named, numbered, payloads, written

from app.events.bus import listener as listening
from app.events.bus.base import ENDED, Event, StreamingParts
from app.events.bus.frames import PIECE_BYTES
from app.events.bus.listener import DISCONNECT_ABOVE, MERGE_ABOVE, STALLED_ABOVE, Listener
from app.events.bus.memory import MemoryBus

MB = 1_000_000


def big(size: int = MB) -> Event:
    return Event("big", b'{"type":"big","properties":{"text":"%b"}}' % (b"x" * size), session_id="ses_1", directory="/d")


async def read(pieces: AsyncIterator[bytes], events: int = 1) -> None:
    """So many large events, to the end of the last."""
    while events > 0:
        async with asyncio.timeout(60):
            events -= (await anext(pieces)).endswith(b"\n\n")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds after which a client that takes nothing is cut off."""
    monkeypatch.setattr(listening, "STALLED_SECONDS", 0.05)
    return 0.05


async def test_a_slow_listener_has_its_part_frames_merged_and_loses_no_text() -> None:
    bus = MemoryBus()
    slow = Listener(bus, "/d")
    texts = [Text(bus, "prt_1"), Text(bus, "prt_2", "ses_2")]
    sent = 0
    for number in range(40):
        for text in texts:
            text.gain(f"{number:05}" * 4000)
            bus.flush(f"ses_{1 if text is texts[0] else 2}")
            sent += len(text.text)
    assert sent > 2 * MERGE_ABOVE
    frames = payloads(b"".join(await written(slow)))
    assert len(frames) < 20
    assert gained(frames, "prt_1") == texts[0].text and gained(frames, "prt_2") == texts[1].text
    assert not slow.fell_behind


async def test_merged_frames_stay_between_the_events_around_them() -> None:
    bus = MemoryBus()
    slow = Listener(bus, "/d", deltas=True)
    text = Text(bus)
    for number in range(3):
        bus.publish(named("marker", {"number": number}))
        for _ in range(4):
            text.gain("x" * (MERGE_ABOVE // 8))
            bus.flush("ses_1")
    frames = payloads(b"".join(await written(slow)))
    assert [frame["properties"]["number"] for frame in frames if frame["type"] == "marker"] == [0, 1, 2]
    assert len(frames) < 12


# How much may wait.


async def test_what_is_published_in_one_go_is_no_backlog(soon: float) -> None:
    bus = MemoryBus()
    reading = Listener(bus, "/d")
    for _ in range(20):
        bus.publish(big(2 * MB))
    await asyncio.sleep(0)
    bus.publish(named("next"))
    pieces = aiter(reading)
    for _ in range(20):
        await read(pieces)
        await asyncio.sleep(soon / 5)
    assert not reading.fell_behind and await heard(reading) == ["next"]


async def test_a_client_that_takes_nothing_for_a_while_is_cut_off_and_holds_nobody_up(soon: float) -> None:
    bus = MemoryBus()
    stuck, reading = Listener(bus, "/d"), Listener(bus, "/d")
    pieces = aiter(reading)
    for _ in range(STALLED_ABOVE // MB + 1):
        bus.publish(big())
        await read(pieces)
    assert not stuck.fell_behind
    await asyncio.sleep(2 * soon)
    assert stuck.fell_behind and await has_ended(stuck) and not stuck._frames
    bus.publish(named("more"))
    assert await heard(reading) == ["more"]


async def test_a_client_that_caught_up_and_stops_reading_is_cut_off(soon: float) -> None:
    bus = MemoryBus()
    reading = Listener(bus, "/d")
    for _ in range(40):
        bus.publish(big())
    await read(aiter(reading), 36)
    await asyncio.sleep(2 * soon)
    for _ in range(STALLED_ABOVE // MB):
        bus.publish(big())
        await asyncio.sleep(0)
    await asyncio.sleep(2 * soon)
    assert reading.fell_behind


async def test_a_client_for_which_little_waits_may_take_its_time(soon: float) -> None:
    bus = MemoryBus()
    idle = Listener(bus, "/d")
    bus.publish(big())
    await asyncio.sleep(3 * soon)
    assert not idle.fell_behind


async def test_a_client_that_reads_but_falls_far_behind_is_cut_off(soon: float) -> None:
    bus = MemoryBus()
    slow = Listener(bus, "/d")
    pieces, published = aiter(slow), 0
    while not slow.fell_behind:
        bus.publish(big())
        published += MB
        await anext(pieces, None)
        await asyncio.sleep(0)
        assert published < 3 * DISCONNECT_ABOVE
    assert published > DISCONNECT_ABOVE


async def test_a_large_event_is_cut_into_pieces_and_not_copied() -> None:
    bus = MemoryBus()
    listener = Listener(bus, None, ids=True)
    event = named("t", {"text": "é" * 4 * MB}, seq=7)
    bus.publish(event)
    assert listener._frames[0].event.payload is event.payload
    pieces = await written(listener)
    assert max(map(len, pieces)) <= PIECE_BYTES and b"".join(pieces).startswith(b"id: 7\ndata: {")
    named_event = {"id": event.id().wire(None).decode(), **json.loads(event.payload)}
    assert payloads(b"".join(pieces)) == [{"directory": "/d", "payload": named_event}]


async def test_many_small_events_come_in_few_pieces() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    for _ in range(1000):
        bus.publish(big(1000))
    pieces = await written(listener)
    assert len(payloads(b"".join(pieces))) == 1000
    assert len(pieces) < 10 and max(map(len, pieces)) <= 2 * PIECE_BYTES


async def test_an_event_that_is_being_written_is_written_to_its_end(soon: float) -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    for _ in range(2):
        bus.publish(big(STALLED_ABOVE + 1))
    pieces = aiter(listener)
    first = await anext(pieces)
    await asyncio.sleep(3 * soon)
    assert listener.fell_behind
    assert len(payloads(first + b"".join([piece async for piece in pieces]))) == 1


async def test_waiting_for_a_client_costs_little_however_much_waits() -> None:
    bus = MemoryBus()
    stuck = Listener(bus, "/d")
    began = time.process_time()
    for _ in range(STALLED_ABOVE // 400):
        bus.publish(big(400))
    assert time.process_time() - began < 5 and len(stuck._frames) == STALLED_ABOVE // 400


async def test_a_frame_that_cannot_be_written_ends_its_client_alone(caplog: pytest.LogCaptureFixture) -> None:
    bus = MemoryBus()
    listener = Listener(bus, None)
    bus.publish(named("t", directory="\ud800"))
    assert await written(listener) == [] and bus.listeners() == 0
    assert caplog.text.count("could not be written") == 1


async def test_a_closed_listener_gets_what_waited_then_the_end() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    bus.publish(named("last"))
    listener.close()
    bus.publish(named("too late"))
    assert await heard(listener) == ["last"]
    assert await has_ended(listener)


# What a client that comes back has been sent already comes no second time.


async def test_events_that_were_replayed_are_not_sent_again() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    for seq in (5, 6, 7):
        bus.publish(numbered(seq))
    listener.resume(6, StreamingParts({}, []))
    bus.publish(numbered(8))
    bus.publish(named("passing", journaled=False))
    assert await heard(listener) == [7, 8, "passing"]


@pytest.mark.parametrize(("known", "new"), [(5, " there"), (10, "e"), (11, ""), (99, "")])
async def test_of_a_part_that_was_sent_as_it_stood_only_what_it_gained_since_is_sent(known: int, new: str) -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    text = Text(bus)
    for piece in ("Hel", "lo"):
        text.gain(piece)
        bus.flush("ses_1")
    listener.resume(0, StreamingParts({"prt_1": known}, []))
    text.gain(" there")
    bus.publish(named("end", journaled=False))
    frames = await heard(listener)
    assert gained(frames[:-1]) == new


async def test_a_frame_that_was_merged_across_the_known_length_is_cut() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    text = Text(bus)
    text.gain("Hel")
    text.gain("lo")
    listener.resume(0, StreamingParts({"prt_1": 5}, []))
    text.gain(" you")
    bus.publish(named("end", journaled=False))
    assert gained((await heard(listener))[:-1]) == " you"


async def test_what_is_on_its_way_of_a_part_that_has_ended_does_not_come_after_its_end() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    Text(bus).gain("Hello")
    bus.flush("ses_1")
    bus.publish(numbered(5))
    listener.resume(5, StreamingParts({}, []))
    bus.publish(numbered(6))
    assert await heard(listener) == [6]


@pytest.mark.parametrize("text", ["", "lo"])
async def test_nothing_more_is_sent_of_a_part_whose_last_event_was_replayed(text: str) -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    listener.resume(5, StreamingParts({"prt_1": ENDED}, []))
    Text(bus).gain(text)
    bus.publish(numbered(5))
    bus.publish(numbered(6))
    assert await heard(listener) == [6]


async def test_other_parts_are_not_cut() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    listener.resume(0, StreamingParts({"prt_other": 100}, []))
    Text(bus).gain("Hello")
    assert gained(await heard(listener)) == "Hello"


async def test_while_a_client_is_sent_the_journal_nothing_waits_for_it() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    bus.publish(numbered(1))
    listener.pause()
    bus.publish(numbered(2))
    listener.unpause()
    bus.publish(numbered(3))
    bus.publish(numbered(4))
    listener.resume(3, StreamingParts({}, []))
    assert await heard(listener) == [4]


async def test_the_parts_that_stream_come_behind_the_events_that_wait() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d")
    text = Text(bus)
    text.gain("Hel")
    bus.publish(numbered(5))
    listener.resume(4, StreamingParts({"prt_1": 3}, [named("as it is", journaled=False)]))
    text.gain("lo")
    bus.publish(numbered(6))
    said = await heard(listener)
    assert [said[0], said[1], said[2]["properties"]["delta"], said[3]] == [5, "as it is", "lo", 6]
