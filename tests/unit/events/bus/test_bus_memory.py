"""Who hears what, in which order; and that nothing which fails for one client reaches who publishes."""

import logging

import pytest
from bus_parts import Text, gained, has_ended, heard, named
from storage_parts import delta

from app.events.bus.base import PartDelta
from app.events.bus.frames import Frame
from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus


@pytest.mark.parametrize("deltas", [False, True])
async def test_what_streamed_before_an_event_of_the_session_is_sent_before_it(deltas: bool) -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=deltas)
    text = Text(bus)
    for piece in ("Hel", "lo ", "there"):
        text.gain(piece)
    bus.publish(named("end", {"at": 1}))
    frames = await heard(listener)
    assert gained(frames[:-1]) == "Hello there" and frames[-1]["type"] == "end"


async def test_an_event_of_another_session_flushes_nothing() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    text = Text(bus)
    text.gain("a")
    text.gain("b")
    bus.publish(named("end", {"at": 1}, session_id="ses_2"))
    assert gained(await heard(listener)) == "a"


async def test_delta_listeners_hear_of_progress_that_is_no_text() -> None:
    bus = MemoryBus()
    gains = Listener(bus, "/d", deltas=True)
    Text(bus).gain("")
    assert [frame["type"] for frame in await heard(gains)] == ["message.part.updated"]


async def test_nothing_is_rendered_when_nobody_listens() -> None:
    def fail() -> bytes:
        raise AssertionError("rendered for nobody")

    bus = MemoryBus()
    Listener(bus, "/elsewhere")
    bus.publish_delta(PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, fail))


async def test_a_frame_is_made_once_for_all_listeners() -> None:
    made = []

    def render() -> bytes:
        made.append(1)
        return b"{}"

    bus = MemoryBus()
    listeners = [Listener(bus, "/d") for _ in range(50)]
    bus.publish_delta(PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, render))
    written = [await anext(aiter(listener)) for listener in listeners]
    assert len(made) == 1 and len(set(written)) == 1


async def test_deltas_of_a_session_are_heard_in_order_beside_another_session() -> None:
    bus = MemoryBus()
    listener = Listener(bus, "/d", deltas=True)
    bus.publish_delta(delta("a", size=1))
    bus.publish_delta(delta("other", "ses_2", "prt_2", size=5))
    bus.publish_delta(delta("b", size=2))
    bus.flush("ses_1")
    assert gained(await heard(listener)) == "ab"


class Breaking(Listener):
    """Fails at whatever is put before it."""

    def push(self, frame: Frame) -> None:
        raise ValueError("broken")


async def test_a_listener_that_fails_is_closed_and_holds_up_neither_who_publishes_nor_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryBus()
    broken, sound = Listener(bus, "/d"), Listener(bus, "/d")
    broken.__class__ = Breaking
    for name in ("one", "two"):
        bus.publish(named(name))
    assert await heard(sound) == ["one", "two"]
    assert await has_ended(broken)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_a_part_that_cannot_be_rendered_disconnects_who_is_sent_it(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("no JSON")

    bus = MemoryBus()
    whole, gains = Listener(bus, "/d"), Listener(bus, "/d", deltas=True)
    bus.publish_delta(PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, fail))
    bus.publish(named("end", {"at": 1}))
    assert await has_ended(whole)
    assert gained((await heard(gains))[:-1]) == "x"
    assert caplog.text.count("could not be shown") == 1
