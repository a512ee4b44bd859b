"""The one source of time."""

from collections.abc import Iterator

import pytest

from app.util import clock


@pytest.fixture(autouse=True)
def set_clock() -> Iterator[None]:
    clock.set_source(lambda: 1_769_153_255.0239)
    yield
    clock.set_source()


def test_now_is_in_whole_milliseconds() -> None:
    assert clock.now_ms() == 1_769_153_255_023


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


def test_today_is_a_local_date_with_its_zone() -> None:
    assert clock.today().tzinfo is not None
    assert clock.today().timestamp() == pytest.approx(1_769_153_255.0239)


def test_without_a_source_it_is_the_systems() -> None:
    clock.set_source()
    assert clock.now_ms() != 1_769_153_255_023
