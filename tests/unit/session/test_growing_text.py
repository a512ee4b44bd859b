import orjson
from session_parts import text_part

from app.session.growing_text import GrowingText


def test_a_text_is_joined_when_it_is_read() -> None:
    growing = GrowingText(text_part("prt_1", "He"))
    for piece in ("l", "lo"):
        growing.append(piece)
    assert growing.size == 5 and growing.part.text == "He"
    assert growing.joined().text == "Hello" and growing.part.text == "Hello"
    assert growing.joined() is growing.part


def test_a_frame_shows_the_part_as_it_was() -> None:
    growing = GrowingText(text_part("prt_1", "He"))
    growing.append("llo")
    assert [orjson.loads(growing.json_at_length(size))["text"] for size in (2, 5, 4)] == ["He", "Hello", "Hell"]
