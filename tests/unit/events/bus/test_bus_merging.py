"""A streaming part's deltas: the first at once, then joined into as many frames as its size allows."""

import asyncio
from dataclasses import replace

import pytest
from bus_parts import named, payloads
from polling import until

from app.events.bus.base import EventId, PartDelta
from app.events.bus.frames import (
    BYTES_PER_SECOND,
    PIECE_BYTES,
    SHORTEST_INTERVAL,
    EventFrame,
    Format,
    PartFrame,
    PartMerger,
    pieces,
)


def part_delta(text: str, size: int, whole: bytes = b"{}", part_id: str = "prt_1") -> PartDelta:
    return PartDelta("/d", "ses_1", "msg_1", part_id, text, size, lambda: whole)


class StreamingText:
    """A part that grows, and the frames that a merger makes of it."""

    def __init__(self, *, deltas: bool) -> None:
        self.frames: list[PartFrame] = []
        self.failed: list[PartDelta] = []
        self.deltas, self.text = deltas, ""
        self.merger = PartMerger(
            lambda frame, _: self.frames.append(frame), lambda delta, _: self.failed.append(delta), lambda: EventId.behind(0)
        )

    def gain(self, text: str) -> None:
        self.text += text
        self.merger.add(part_delta(text, len(self.text), self.text.encode()), deltas=self.deltas)

    @property
    def texts(self) -> list[str]:
        return [frame.text for frame in self.frames]


@pytest.mark.parametrize("deltas", [False, True])
async def test_the_first_delta_is_sent_at_once_and_what_comes_fast_is_joined(deltas: bool) -> None:
    streaming = StreamingText(deltas=deltas)
    for number in range(500):
        streaming.gain(f"{number} ")
    assert streaming.texts == ["0 "]
    await until(lambda: len(streaming.frames) >= 2)
    assert "".join(streaming.texts) == streaming.text


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


@pytest.mark.parametrize("deltas", [False, True])
async def test_a_flush_sends_what_waits_as_the_part_is_then_and_leaves_nothing_behind(deltas: bool) -> None:
    streaming = StreamingText(deltas=deltas)
    for text in ("a", "b", "c"):
        streaming.gain(text)
    for _ in range(2):
        streaming.merger.flush("ses_1")
    await asyncio.sleep(SHORTEST_INTERVAL * 3)
    assert streaming.texts == ["a", "bc"]
    assert deltas or [frame.part for frame in streaming.frames] == [b"a", b"abc"]


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
    broken = part_delta("x", 1, part_id="prt_2")._replace(render=fail)
    streaming.merger.add(broken, deltas=False)
    streaming.gain("a")
    assert streaming.failed == [broken] and streaming.texts == ["a"] and "prt_2 could not be shown" in caplog.text
    assert len(streaming.merger) == 1


async def test_frames_of_whole_parts_and_of_deltas_have_each_their_own_pace() -> None:
    sent: list[tuple[bool, str]] = []
    merger = PartMerger(lambda frame, deltas: sent.append((deltas, frame.text)), lambda *_: None, lambda: EventId.behind(0))
    for text in ("a", "b"):
        for deltas in (False, True):
            merger.add(part_delta(text, 1, b"x" * 20_000), deltas=deltas)
    await asyncio.sleep(3 * SHORTEST_INTERVAL)
    assert sent == [(False, "a"), (True, "a"), (True, "b")]
    merger.flush("ses_1")
    assert sent[3:] == [(False, "b")]


# Frames.


def test_a_large_frame_is_cut_and_one_whose_text_was_is_written_anew() -> None:
    form, large = Format(global_=True), EventFrame(named("t", {"text": "t" * 2 * PIECE_BYTES}), EventId(7, 16))
    cut = list(pieces([large], form))
    assert max(map(len, cut)) == PIECE_BYTES and b"".join(cut) == large.written(form)
    frame = PartFrame(part_delta("", 2, part_id='prt_"1')._replace(directory='/d"é'), EventId(7, 16), "ab")
    written = [each.written(Format()) for each in (frame, replace(frame, text="b"))]
    assert [payloads(each)[0]["properties"]["delta"] for each in written] == ["ab", "b"]


def test_joined_frames_keep_the_newer_part_and_all_the_text() -> None:
    older, newer = (
        PartFrame(part_delta("", 2), EventId(6, 1), "ab", b"1"),
        PartFrame(part_delta("", 3), EventId(7, 16), "c", b"2"),
    )
    joined = older.merged_with(newer)
    assert (joined.text, joined.part, joined.delta.size, joined.id) == ("abc", b"2", 3, EventId(7, 16))
