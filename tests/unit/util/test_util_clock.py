"""The one source of time."""

from collections.abc import Iterator

import pytest

from app.util import clock


@pytest.fixture(autouse=True)
def set_clock() -> Iterator[None]:
    clock.set_source(lambda: 1_769_153_255.0239)
    yield
    clock.set_source()


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_769_153_255_000, "2026-01-23T07:27:35.000Z"),
        (1_769_153_255_007, "2026-01-23T07:27:35.007Z"),
        (0, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_iso_stamps_have_three_decimals_and_are_in_utc(ms: int, text: str) -> None:
    assert clock.iso_utc(ms) == text
