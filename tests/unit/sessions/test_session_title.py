"""Default titles, and the titles of forks."""

from collections.abc import Iterator

import pytest

from app.sessions.fork import default_title, is_default_title, make_slug, title_of_fork
from app.util import clock


@pytest.fixture
def at_noon() -> Iterator[None]:
    clock.set_source(lambda: 1_769_000_000.123)
    yield
    clock.set_source()


@pytest.mark.usefixtures("at_noon")
def test_a_default_title_says_when() -> None:
    assert default_title(child=False) == "New session - 2026-01-21T12:53:20.123Z"
    assert default_title(child=True) == "Child session - 2026-01-21T12:53:20.123Z"


@pytest.mark.parametrize("child", [True, False])
def test_a_default_title_is_known_as_one(child: bool) -> None:
    assert is_default_title(default_title(child=child))


@pytest.mark.parametrize(
    "chosen",
    [
        "",
        "New session",
        "New session - ",
        "New session - 2026-01-21T12:53:20Z",
        "x New session - 2026-01-21T12:53:20.123Z",
        "New session - 2026-01-21T12:53:20.123Z (fork #1)",
        "New session - 2026-01-21T12:53:20.123Z\n",
    ],
)
def test_a_chosen_title_is_not(chosen: str) -> None:
    assert not is_default_title(chosen)


@pytest.mark.parametrize(
    ("original", "fork"),
    [
        ("T", "T (fork #1)"),
        ("T (fork #1)", "T (fork #2)"),
        ("T (fork #9)", "T (fork #10)"),
        ("T (fork #1) x", "T (fork #1) x (fork #1)"),
        ("T (fork #x)", "T (fork #x) (fork #1)"),
        ("(fork #1)", "(fork #1) (fork #1)"),
        ("two\nlines (fork #3)", "two\nlines (fork #4)"),
        ("", " (fork #1)"),
    ],
)
def test_forks_are_counted(original: str, fork: str) -> None:
    assert title_of_fork(original) == fork


def test_a_slug_is_two_words() -> None:
    assert all(make_slug().count("-") == 1 and make_slug().replace("-", "").isalpha() for _ in range(100))
