import base64

import pytest

from app.schema.errors import BadRequest
from app.turn.intake.prompt_parts import data_text, line_range


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", (None, None)),
        ("start=2&end=3", (1, 2)),
        ("start=2", (1, None)),
        ("end=3", (None, None)),
        ("start=0&end=4", (0, 4)),
        ("start=5&end=5", (4, 1)),
        ("start=9&end=2", (8, 1)),
        ("start=x&end=3", (None, None)),
        ("start=2&end=x", (1, None)),
        ("start=-2", (None, None)),
        ("start=²", (None, None)),
        ("start=99999999999999999999&end=3", (None, None)),
        (f"start=2&end={'9' * 5000}", (1, None)),
    ],
)
def test_lines_from_one_become_what_to_skip_and_to_read(query: str, expected: tuple[int | None, int | None]) -> None:
    assert line_range(query) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"data:text/plain;base64,{base64.b64encode('grüße?>'.encode()).decode()}", "grüße?>"),
        ("data:text/plain;base64,YQ", "a"),
        (f"data:text/plain;base64,{base64.urlsafe_b64encode('ÿ?>'.encode()).decode()}", "ÿ?>"),
        ("data:text/plain,a%20b%C3%BC", "a bü"),
        ("data:text/plain;charset=utf-8,plain", "plain"),
        ("data:,", ""),
        ("data:text/plain;base64,/w==", "\ufffd"),
    ],
)
def test_a_data_url_says_what_was_put_into_it(url: str, expected: str) -> None:
    assert data_text(url) == expected


def test_what_is_not_base64_refuses_the_prompt() -> None:
    with pytest.raises(BadRequest):
        data_text("data:text/plain;base64,a")
