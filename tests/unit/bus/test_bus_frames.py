"""What is written to a client, byte by byte."""

import json
from dataclasses import replace

from bus_parts import named

from app.bus.base import EventId, PartDelta
from app.bus.frames import PIECE_BYTES, EventFrame, Format, Frame, PartFrame, pieces
from app.util import clock

GLOBAL = Format(global_=True)
ID = EventId(7, 16)
WIRE_ID = "evt_00000000000070000000000010"


def part_delta(text: str, size: int = 0) -> PartDelta:
    return PartDelta('/d"é', "ses_1", "msg_1", 'prt_"1', text, size, lambda: b"{}")


def written(frame: Frame, form: Format = Format()) -> bytes:
    return frame.written(form)


def data(frame: bytes) -> dict[str, object]:
    line = frame.decode().removesuffix("\n\n").split("\n")[-1]
    parsed: dict[str, object] = json.loads(line.removeprefix("data: "))
    return parsed


def test_an_event_with_a_number_has_an_id_line_for_who_asks() -> None:
    frame = EventFrame(named("t", seq=7), EventId(7))
    event = b'data: {"id":"evt_00000000000070000000000000","type":"t","properties":{}}\n\n'
    assert written(frame, Format(ids=True)) == b"id: 7\n" + event
    assert written(frame) == event


def test_an_event_without_a_number_has_none() -> None:
    frame = EventFrame(named("t", journaled=False), ID)
    assert written(frame, Format(ids=True)) == b'data: {"id":"evt_00000000000070000000000010","type":"t","properties":{}}\n\n'


def test_the_second_api_writes_its_directory_and_data() -> None:
    frame = EventFrame(named("t", {"a": 1}, directory='/d"é'), ID)
    assert data(written(frame, Format(second=True))) == {
        "id": WIRE_ID,
        "type": "t",
        "location": {"directory": '/d"é'},
        "data": {"a": 1},
    }


def test_a_large_frame_is_cut() -> None:
    frame = EventFrame(named("t", {"text": "t" * 2 * PIECE_BYTES}), ID)
    cut = list(pieces([frame], GLOBAL))
    assert max(map(len, cut)) == PIECE_BYTES and b"".join(cut) == written(frame, GLOBAL)


def test_a_frame_that_is_cut_is_written_anew() -> None:
    frame = PartFrame(part_delta("", 2), ID, "ab")
    written(frame)
    assert data(written(replace(frame, text="b")))["properties"]["delta"] == "b"  # type: ignore[index]


def test_the_global_stream_wraps_it_with_its_directory() -> None:
    payload = {"id": WIRE_ID, "type": "t", "properties": {}}
    assert data(written(EventFrame(named("t", directory='/d"é'), ID), GLOBAL)) == {"directory": '/d"é', "payload": payload}
    assert data(written(EventFrame(named("t", directory=None), ID), GLOBAL)) == {"payload": payload}


def test_a_gain_says_which_part_gained_what() -> None:
    frame = PartFrame(part_delta("", 0), ID, 'a "quoted"\nline \U0001f600')
    gain = {
        "sessionID": "ses_1",
        "messageID": "msg_1",
        "partID": 'prt_"1',
        "partType": "text",
        "field": "text",
        "delta": 'a "quoted"\nline \U0001f600',
    }
    assert data(written(frame)) == {"id": WIRE_ID, "type": "message.part.delta", "properties": gain}


def test_a_whole_frame_has_the_part_and_the_delta() -> None:
    frame = PartFrame(part_delta(""), ID, "lo", b'{"text":"Hello"}')
    before, shown = clock.now_ms(), data(written(frame))
    time = shown["properties"].pop("time")  # type: ignore[attr-defined]
    assert shown == {
        "id": WIRE_ID,
        "type": "message.part.updated",
        "properties": {"part": {"text": "Hello"}, "delta": "lo", "sessionID": "ses_1"},
    }
    assert before <= time <= clock.now_ms()
    assert data(written(frame, GLOBAL))["directory"] == '/d"é'


def test_joined_frames_keep_the_newer_part_and_all_the_text() -> None:
    older, newer = PartFrame(part_delta("", 2), EventId(6, 1), "ab", b"1"), PartFrame(part_delta("", 3), ID, "c", b"2")
    joined = older.merged_with(newer)
    assert (joined.text, joined.part, joined.delta.size, joined.id) == ("abc", b"2", 3, ID)
