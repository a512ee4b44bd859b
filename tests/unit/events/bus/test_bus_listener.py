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


@pytest.fixture
async def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def client(bus: MemoryBus) -> Listener:
    return Listener(bus, "/d")


@pytest.fixture
async def gains(bus: MemoryBus) -> Listener:
    """A client that is sent parts as deltas."""
    return Listener(bus, "/d", deltas=True)


async def test_a_slow_listener_has_its_part_frames_merged_and_loses_no_text(bus: MemoryBus, client: Listener) -> None:
    texts, sent = {"ses_1": Text(bus, "prt_1"), "ses_2": Text(bus, "prt_2", "ses_2")}, 0
    for number in range(40):
        for session, text in texts.items():
            text.gain(f"{number:05}" * 4000)
            bus.flush(session)
            sent += len(text.text)
    assert sent > 2 * MERGE_ABOVE
    frames = payloads(b"".join(await written(client)))
    assert len(frames) < 20 and not client.fell_behind
    assert [gained(frames, part) for part in ("prt_1", "prt_2")] == [text.text for text in texts.values()]


async def test_merged_frames_stay_between_the_events_around_them(bus: MemoryBus, gains: Listener) -> None:
    text = Text(bus)
    for number in range(3):
        bus.publish(named("marker", {"number": number}))
        for _ in range(4):
            text.gain("x" * (MERGE_ABOVE // 8))
            bus.flush("ses_1")
    frames = payloads(b"".join(await written(gains)))
    assert [frame["properties"]["number"] for frame in frames if frame["type"] == "marker"] == [0, 1, 2]
    assert len(frames) < 12


# How much may wait.


async def test_what_is_published_in_one_go_is_no_backlog(bus: MemoryBus, client: Listener, soon: float) -> None:
    for _ in range(20):
        bus.publish(big(2 * MB))
    await asyncio.sleep(0)
    bus.publish(named("next"))
    pieces = aiter(client)
    for _ in range(20):
        await read(pieces)
        await asyncio.sleep(soon / 5)
    assert not client.fell_behind and await heard(client) == ["next"]


async def test_a_client_that_takes_nothing_for_a_while_is_cut_off_and_holds_nobody_up(
    bus: MemoryBus, client: Listener, soon: float
) -> None:
    reading = Listener(bus, "/d")
    pieces = aiter(reading)
    bus.publish(big())
    await asyncio.sleep(3 * soon)
    assert not client.fell_behind, "for which little waits, it may take its time"
    await read(pieces)
    for _ in range(STALLED_ABOVE // MB):
        bus.publish(big())
        await read(pieces)
    assert not client.fell_behind
    await asyncio.sleep(2 * soon)
    assert client.fell_behind and await has_ended(client) and not client._frames
    bus.publish(named("more"))
    assert await heard(reading) == ["more"]


async def test_a_client_that_caught_up_and_stops_reading_is_cut_off(bus: MemoryBus, client: Listener, soon: float) -> None:
    for _ in range(40):
        bus.publish(big())
    await read(aiter(client), 36)
    await asyncio.sleep(2 * soon)
    for _ in range(STALLED_ABOVE // MB):
        bus.publish(big())
        await asyncio.sleep(0)
    await asyncio.sleep(2 * soon)
    assert client.fell_behind


@pytest.mark.usefixtures("soon")
async def test_a_client_that_reads_but_falls_far_behind_is_cut_off(bus: MemoryBus, client: Listener) -> None:
    pieces, published = aiter(client), 0
    while not client.fell_behind:
        bus.publish(big())
        published += MB
        await anext(pieces, None)
        await asyncio.sleep(0)
        assert published < 3 * DISCONNECT_ABOVE
    assert published > DISCONNECT_ABOVE


async def test_a_large_event_is_cut_into_pieces_and_not_copied(bus: MemoryBus) -> None:
    listener = Listener(bus, None, ids=True)
    event = named("t", {"text": "é" * 4 * MB}, seq=7)
    bus.publish(event)
    assert listener._frames[0].event.payload is event.payload
    pieces = await written(listener)
    assert max(map(len, pieces)) <= PIECE_BYTES and b"".join(pieces).startswith(b"id: 7\ndata: {")
    named_event = {"id": event.id().wire(None).decode(), **json.loads(event.payload)}
    assert payloads(b"".join(pieces)) == [{"directory": "/d", "payload": named_event}]


async def test_many_small_events_come_in_few_pieces_and_cost_little_while_they_wait(bus: MemoryBus, client: Listener) -> None:
    began, count = time.process_time(), STALLED_ABOVE // 400
    for _ in range(count):
        bus.publish(big(400))
    assert time.process_time() - began < 5 and len(client._frames) == count
    pieces = await written(client)
    assert len(payloads(b"".join(pieces))) == count
    assert len(pieces) < count / 50 and max(map(len, pieces)) <= 2 * PIECE_BYTES


async def test_an_event_that_is_being_written_is_written_to_its_end(bus: MemoryBus, client: Listener, soon: float) -> None:
    for _ in range(2):
        bus.publish(big(STALLED_ABOVE + 1))
    pieces = aiter(client)
    first = await anext(pieces)
    await asyncio.sleep(3 * soon)
    assert client.fell_behind
    assert len(payloads(first + b"".join([piece async for piece in pieces]))) == 1


async def test_a_frame_that_cannot_be_written_ends_its_client_alone(bus: MemoryBus, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener(bus, None)
    bus.publish(named("t", directory="\ud800"))
    assert await written(listener) == [] and bus.listeners() == 0
    assert caplog.text.count("could not be written") == 1


async def test_a_closed_listener_gets_what_waited_then_the_end(bus: MemoryBus, client: Listener) -> None:
    bus.publish(named("last"))
    client.close()
    bus.publish(named("too late"))
    assert await heard(client) == ["last"]
    assert await has_ended(client)


# What a client that comes back has been sent already comes no second time.


async def test_events_that_were_replayed_are_not_sent_again(bus: MemoryBus, client: Listener) -> None:
    for seq in (5, 6, 7):
        bus.publish(numbered(seq))
    client.resume(6, StreamingParts({}, []))
    bus.publish(numbered(8))
    bus.publish(named("passing", journaled=False))
    assert await heard(client) == [7, 8, "passing"]


@pytest.mark.parametrize(("known", "new"), [(5, " there"), (10, "e"), (11, ""), (99, "")])
@pytest.mark.parametrize("is_merged", [False, True])
async def test_of_a_part_that_was_sent_as_it_stood_only_what_it_gained_since_is_sent(
    bus: MemoryBus, gains: Listener, known: int, new: str, is_merged: bool
) -> None:
    text, other = Text(bus), Text(bus, "prt_2")
    for piece in ("Hel", "lo"):
        text.gain(piece)
        if not is_merged:
            bus.flush("ses_1")
    gains.resume(0, StreamingParts({"prt_1": known}, []))
    text.gain(" there")
    other.gain("Hello")
    bus.publish(named("end", journaled=False))
    frames = (await heard(gains))[:-1]
    assert (gained(frames), gained(frames, "prt_2")) == (new, "Hello"), "and another is not cut"


async def test_what_is_on_its_way_of_a_part_that_has_ended_does_not_come_after_its_end(bus: MemoryBus, gains: Listener) -> None:
    Text(bus).gain("Hello")
    bus.flush("ses_1")
    bus.publish(numbered(5))
    gains.resume(5, StreamingParts({}, []))
    bus.publish(numbered(6))
    assert await heard(gains) == [6]


@pytest.mark.parametrize("text", ["", "lo"])
async def test_nothing_more_is_sent_of_a_part_whose_last_event_was_replayed(bus: MemoryBus, client: Listener, text: str) -> None:
    client.resume(5, StreamingParts({"prt_1": ENDED}, []))
    Text(bus).gain(text)
    for seq in (5, 6):
        bus.publish(numbered(seq))
    assert await heard(client) == [6]


async def test_while_a_client_is_sent_the_journal_nothing_waits_for_it(bus: MemoryBus, client: Listener) -> None:
    bus.publish(numbered(1))
    client.pause()
    bus.publish(numbered(2))
    client.unpause()
    for seq in (3, 4):
        bus.publish(numbered(seq))
    client.resume(3, StreamingParts({}, []))
    assert await heard(client) == [4]


async def test_the_parts_that_stream_come_behind_the_events_that_wait(bus: MemoryBus, client: Listener) -> None:
    text = Text(bus)
    text.gain("Hel")
    bus.publish(numbered(5))
    client.resume(4, StreamingParts({"prt_1": 3}, [named("as it is", journaled=False)]))
    text.gain("lo")
    bus.publish(numbered(6))
    first, whole, delta, last = await heard(client)
    assert [first, whole, delta["properties"]["delta"], last] == [5, "as it is", "lo", 6]
