"""Who hears what, in which order; and that nothing which fails for one client reaches who publishes."""

import logging
from collections.abc import Callable

import pytest
from bus_parts import Text, gained, has_ended, heard, named
from storage_parts import delta

from app.events.bus.base import PartDelta
from app.events.bus.frames import Frame
from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus


def rendered_by(render: Callable[[], bytes]) -> PartDelta:
    return PartDelta("/d", "ses_1", "msg_1", "prt_1", "x", 1, render)


def fail() -> bytes:
    raise ValueError("no JSON")


@pytest.fixture
async def bus() -> MemoryBus:
    return MemoryBus()


@pytest.mark.parametrize("deltas", [False, True])
async def test_what_streamed_before_an_event_of_the_session_is_sent_before_it(bus: MemoryBus, deltas: bool) -> None:
    listener, text = Listener(bus, "/d", deltas=deltas), Text(bus)
    for piece in ("Hel", "lo ", "there"):
        text.gain(piece)
    bus.publish(named("another session's", {"at": 1}, session_id="ses_2"))
    bus.publish(named("end", {"at": 1}))
    first, other, second, end = await heard(listener)
    assert gained([first, second]) == "Hello there" and (other["type"], end["type"]) == ("another session's", "end")


async def test_delta_listeners_hear_of_progress_that_is_no_text(bus: MemoryBus) -> None:
    gains = Listener(bus, "/d", deltas=True)
    Text(bus).gain("")
    assert [frame["type"] for frame in await heard(gains)] == ["message.part.updated"]


async def test_a_frame_is_made_once_for_all_listeners_and_for_none_not_at_all(bus: MemoryBus) -> None:
    made: list[bytes] = []

    def render() -> bytes:
        made.append(b"{}")
        return b"{}"

    Listener(bus, "/elsewhere")
    bus.publish_delta(rendered_by(render))
    assert made == []
    listeners = [Listener(bus, "/d") for _ in range(50)]
    bus.publish_delta(rendered_by(render))
    written = {await anext(aiter(listener)) for listener in listeners}
    assert len(made) == 1 == len(written)


async def test_deltas_of_a_session_are_heard_in_order_beside_another_session(bus: MemoryBus) -> None:
    listener = Listener(bus, "/d", deltas=True)
    for each in (delta("a", size=1), delta("other", "ses_2", "prt_2", size=5), delta("b", size=2)):
        bus.publish_delta(each)
    bus.flush("ses_1")
    assert gained(await heard(listener)) == "ab"


class Breaking(Listener):
    """Fails at whatever is put before it."""

    def push(self, frame: Frame) -> None:
        raise ValueError("broken")


async def test_a_listener_that_fails_is_closed_and_holds_up_neither_who_publishes_nor_others(
    bus: MemoryBus, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = Listener(bus, "/d"), Listener(bus, "/d")
    broken.__class__ = Breaking
    for name in ("one", "two"):
        bus.publish(named(name))
    assert await heard(sound) == ["one", "two"]
    assert await has_ended(broken)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_a_part_that_cannot_be_rendered_disconnects_who_is_sent_it(
    bus: MemoryBus, caplog: pytest.LogCaptureFixture
) -> None:
    whole, gains = Listener(bus, "/d"), Listener(bus, "/d", deltas=True)
    bus.publish_delta(rendered_by(fail))
    bus.publish(named("end", {"at": 1}))
    assert await has_ended(whole)
    assert gained((await heard(gains))[:-1]) == "x"
    assert caplog.text.count("could not be shown") == 1
