"""Labels have a bound."""

from app.events.telemetry.metrics import LONGEST, OTHER, BoundedLabels


def test_the_first_keep_their_names_and_the_rest_are_other() -> None:
    labels = BoundedLabels(2)
    assert [labels.bounded(name) for name in ("a", "b", "c", "a", "d")] == [("a",), ("b",), (OTHER,), ("a",), (OTHER,)]


def test_a_combination_that_does_not_fit_is_other_altogether() -> None:
    labels = BoundedLabels(1)
    assert [labels.bounded("acme", "big"), labels.bounded("acme", "small")] == [("acme", "big"), (OTHER, OTHER)]


def test_a_long_name_takes_no_place() -> None:
    labels = BoundedLabels(1)
    assert labels.bounded("n" * (LONGEST + 1)) == (OTHER,)
    assert labels.bounded("n" * LONGEST) == ("n" * LONGEST,)
