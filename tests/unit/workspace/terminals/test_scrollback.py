"""What is kept of what a terminal printed, and positions in it."""

from hypothesis import given
from hypothesis import strategies as st

from app.workspace.terminals.terminal import PIECE_BYTES, Scrollback


def read_all(scrollback: Scrollback, position: int) -> str:
    text = ""
    while position < scrollback.end:
        piece, position = scrollback.read(position)
        assert piece
        text += piece
    return text


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=50)))
def test_positions_count_what_javascript_counts(pieces: list[str]) -> None:
    scrollback = Scrollback()
    for piece in pieces:
        scrollback.append(piece)
    text = "".join(pieces)
    assert scrollback.end == units(text)
    assert read_all(scrollback, 0) == text
    for index in range(len(text)):
        assert read_all(scrollback, units(text[:index])) == text[index:]


def test_of_more_than_is_kept_the_oldest_goes_and_positions_stay() -> None:
    scrollback = Scrollback(limit_bytes=20)
    for digit in "0123456789":
        scrollback.append(digit * 4)
    assert (scrollback.start, scrollback.end) == (30, 40)
    assert read_all(scrollback, 30) == "7788889999"
    assert read_all(scrollback, 36) == "9999"


def test_a_character_that_lost_its_first_half_is_replaced_and_counted() -> None:
    scrollback = Scrollback(limit_bytes=6)
    scrollback.append("a😀bc")
    assert (scrollback.start, scrollback.end) == (2, 5)
    assert scrollback.read(2) == ("\ufffdbc", 5)


def test_long_text_is_read_in_pieces_that_cut_no_character() -> None:
    scrollback = Scrollback()
    text = "a" + "😀" * (PIECE_BYTES // 4)
    scrollback.append(text)
    piece, position = scrollback.read(0)
    assert len(piece.encode("utf-16-le")) == PIECE_BYTES - 2 and position == PIECE_BYTES // 2 - 1
    assert piece + scrollback.read(position)[0] == text
