"""A streaming part's deltas: the first at once, then joined into as many frames as its size allows."""

import asyncio
from collections.abc import Callable

import pytest

from app.events.bus.base import EventId, PartDelta
from app.events.bus.frames import BYTES_PER_SECOND, SHORTEST_INTERVAL, PartFrame, PartMerger


def next_id() -> EventId:
    return EventId.behind(0)


class StreamingText:
    """A part that grows, and the frames that a merger makes of it."""

    def __init__(self, *, deltas: bool, session_id: str = "ses_1", part_id: str = "prt_1") -> None:
        self.frames: list[PartFrame] = []
        self.failed: list[PartDelta] = []
        self.deltas = deltas
        self.merger = PartMerger(lambda frame, _: self.frames.append(frame), lambda delta, _: self.failed.append(delta), next_id)
        self.text = ""
        self._ids = (session_id, part_id)

    def gain(self, text: str) -> None:
        self.text += text
        session_id, part_id = self._ids
        now = self.text.encode()
        self.merger.add(PartDelta("/d", session_id, "msg_1", part_id, text, len(self.text), lambda: now), deltas=self.deltas)

    @property
    def sent(self) -> str:
        return "".join(frame.text for frame in self.frames)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.002)


async def test_the_first_delta_is_sent_at_once() -> None:
    streaming = StreamingText(deltas=False)
    streaming.gain("Hel")
    assert [frame.text for frame in streaming.frames] == ["Hel"]
    assert streaming.frames[0].part == b"Hel"


@pytest.mark.parametrize("deltas", [False, True])
async def test_deltas_that_come_fast_are_joined_to_the_text(deltas: bool) -> None:
    streaming = StreamingText(deltas=deltas)
    for number in range(500):
        streaming.gain(f"{number} ")
    assert len(streaming.frames) == 1
    await streaming.until(lambda: streaming.sent == streaming.text)
    assert len(streaming.frames) == 2


async def test_a_whole_frame_shows_the_part_as_it_is_when_sent() -> None:
    streaming = StreamingText(deltas=False)
    for letter in "abc":
        streaming.gain(letter)
    streaming.merger.flush("ses_1")
    assert [(frame.text, frame.part) for frame in streaming.frames] == [("a", b"a"), ("bc", b"abc")]


async def test_a_part_costs_a_bounded_number_of_bytes_a_second_however_long_it_is() -> None:
    streaming = StreamingText(deltas=False)
    loop = asyncio.get_running_loop()
    streaming.gain("x" * 10_000)
    began = loop.time()
    while loop.time() - began < 0.5:
        streaming.gain("word " * 4)
        await asyncio.sleep(0.001)
    elapsed = loop.time() - began
    assert sum(frame.size for frame in streaming.frames[1:-1]) <= BYTES_PER_SECOND * elapsed
    assert len(streaming.frames) > 3


async def test_a_flush_sends_what_waits_and_leaves_nothing_behind() -> None:
    streaming = StreamingText(deltas=True)
    for text in ("a", "b", "c"):
        streaming.gain(text)
    streaming.merger.flush("ses_1")
    assert streaming.sent == "abc"
    streaming.merger.flush("ses_1")
    await asyncio.sleep(SHORTEST_INTERVAL * 3)
    assert [frame.text for frame in streaming.frames] == ["a", "bc"]


async def test_a_flush_is_for_its_session_alone() -> None:
    streaming = StreamingText(deltas=True)
    for text in ("a", "b"):
        streaming.gain(text)
    streaming.merger.flush("ses_other")
    assert streaming.sent == "a"


async def test_a_part_that_streams_no_more_is_forgotten() -> None:
    streaming = StreamingText(deltas=True)
    for text in ("a", "b"):
        streaming.gain(text)
    await streaming.until(lambda: len(streaming.merger) == 0)
    streaming.gain("c")
    assert [frame.text for frame in streaming.frames] == ["a", "b", "c"]


@pytest.mark.parametrize("deltas", [False, True])
async def test_progress_without_text_is_sent_as_the_part_stands(deltas: bool) -> None:
    streaming = StreamingText(deltas=deltas)
    for _ in range(3):
        streaming.gain("")
    streaming.merger.flush("ses_1")
    assert len(streaming.frames) == 2
    assert b'"delta"' not in streaming.frames[-1].event.payload


async def test_a_part_that_cannot_be_rendered_is_logged_and_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("no JSON")

    streaming = StreamingText(deltas=False)
    broken = PartDelta("/d", "ses_1", "msg_1", "prt_2", "x", 1, fail)
    streaming.merger.add(broken, deltas=False)
    streaming.gain("a")
    assert streaming.failed == [broken] and streaming.sent == "a" and "prt_2 could not be shown" in caplog.text
    assert len(streaming.merger) == 1


async def test_frames_of_whole_parts_and_of_deltas_have_each_their_own_pace() -> None:
    sent: list[tuple[bool, str]] = []
    merger = PartMerger(lambda frame, deltas: sent.append((deltas, frame.text)), lambda *_: None, next_id)
    for text in ("a", "b"):
        for deltas in (False, True):
            merger.add(PartDelta("/d", "ses_1", "msg_1", "prt_1", text, 1, lambda: b"x" * 20_000), deltas=deltas)
    await asyncio.sleep(3 * SHORTEST_INTERVAL)
    assert sent == [(False, "a"), (True, "a"), (True, "b")]
    merger.flush("ses_1")
    assert sent[3:] == [(False, "b")]
