"""Dataclasses of one's own making do what the library's do."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

MAKERS: list[Any] = [dataclass, dataclasses.dataclass]


def classes(make: Callable[..., Any]) -> tuple[Any, Any]:
    class Point:
        x: int
        y: tuple[int, ...] = ()
        label: str = dataclasses.field(default="here", compare=False)
        secret: str = dataclasses.field(default="key", repr=False)

    class Marked(Point):
        mark: str = "none"

    Point.__qualname__, Marked.__qualname__ = "Point", "Marked"
    point = make(frozen=True, slots=True)(Point)
    return point, make(frozen=True)(Marked)


@pytest.mark.parametrize("make", MAKERS)
def test_values_are_compared_hashed_and_shown(make: Any) -> None:
    point, marked = classes(make)
    assert point(1) == point(1, label="there") != point(2)
    assert point(1, secret="other") != point(1)
    assert {point(1): "found"}[point(1)] == "found"
    assert marked(1) != point(1) and marked(1, mark="a") != marked(1, mark="b")
    assert repr(point(1)) == "Point(x=1, y=(), label='here')"
    assert repr(marked(1)) == "Marked(x=1, y=(), label='here', mark='none')"
    assert dataclasses.asdict(dataclasses.replace(point(1), x=2))["x"] == 2
    with pytest.raises(TypeError):
        hash(point(1, y=[]))


@pytest.mark.parametrize("make", MAKERS)
def test_what_may_change_has_no_hash_and_what_is_not_compared_is_itself_alone(make: Any) -> None:
    class Count:
        n: int = 0

    changing, itself = make(Count), make(eq=False, slots=True)(type("Itself", (), {"__annotations__": {"n": int}, "n": 0}))
    assert changing(1) == changing(1) and itself(1) != itself(1)
    assert hash(itself(1)) != hash(itself(2))
    with pytest.raises(TypeError):
        hash(changing(1))


@pytest.mark.parametrize("make", MAKERS)
def test_a_class_without_fields_equals_its_own(make: Any) -> None:
    empty, other = make(frozen=True)(type("Empty", (), {})), make(frozen=True)(type("Other", (), {}))
    assert empty() == empty() != other() and len({empty(), empty()}) == 1
