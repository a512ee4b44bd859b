"""What is written to a client, byte by byte."""

import json
from dataclasses import replace

from bus_parts import named

from app.events.bus.base import EventId, PartDelta
from app.events.bus.frames import PIECE_BYTES, EventFrame, Format, Frame, PartFrame, pieces

GLOBAL = Format(global_=True)
ID = EventId(7, 16)


def part_delta(text: str, size: int = 0) -> PartDelta:
    return PartDelta('/d"é', "ses_1", "msg_1", 'prt_"1', text, size, lambda: b"{}")


def written(frame: Frame, form: Format = Format()) -> bytes:
    return frame.written(form)


def data(frame: bytes) -> dict[str, object]:
    line = frame.decode().removesuffix("\n\n").split("\n")[-1]
    parsed: dict[str, object] = json.loads(line.removeprefix("data: "))
    return parsed


def test_a_large_frame_is_cut() -> None:
    frame = EventFrame(named("t", {"text": "t" * 2 * PIECE_BYTES}), ID)
    cut = list(pieces([frame], GLOBAL))
    assert max(map(len, cut)) == PIECE_BYTES and b"".join(cut) == written(frame, GLOBAL)


def test_a_frame_that_is_cut_is_written_anew() -> None:
    frame = PartFrame(part_delta("", 2), ID, "ab")
    written(frame)
    assert data(written(replace(frame, text="b")))["properties"]["delta"] == "b"  # type: ignore[index]


def test_joined_frames_keep_the_newer_part_and_all_the_text() -> None:
    older, newer = PartFrame(part_delta("", 2), EventId(6, 1), "ab", b"1"), PartFrame(part_delta("", 3), ID, "c", b"2")
    joined = older.merged_with(newer)
    assert (joined.text, joined.part, joined.delta.size, joined.id) == ("abc", b"2", 3, ID)
