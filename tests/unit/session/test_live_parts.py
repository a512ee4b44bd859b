"""A part while it streams: its text in pieces, and frames that show it as of their delta."""

import orjson
from session_parts import DIRECTORY, text_part

from app.session.live_parts import LivePart


def test_a_text_is_joined_when_it_is_read() -> None:
    live = LivePart(part := text_part("prt_1", "He"), DIRECTORY)
    for piece in ("l", "lo"):
        live.append(piece)
    assert live.size == 5 and part.text == "He"
    assert live.up_to_date() is part and part.text == "Hello"
    assert live.up_to_date() is part and part.text == "Hello"


def test_a_frame_shows_the_part_as_it_was() -> None:
    live = LivePart(text_part("prt_1", "He"), DIRECTORY)
    deltas = [live.delta("He", 0)]
    for piece in ("llo", "!"):
        live.append(piece)
        deltas.append(live.delta(piece, 0))
    assert [delta.size for delta in deltas] == [2, 5, 6]
    assert [orjson.loads(deltas[which].render())["text"] for which in (0, 2, 1)] == ["He", "Hello!", "Hello"]
