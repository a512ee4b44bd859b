"""What streams on another server is shown here as there, and what comes from a server that has lost the session is not."""

from functools import partial
from typing import Any

import orjson
import pytest

from app.events.bus.base import Event, PartDelta
from app.events.bus.shared import RemoteParts


def whole(text: str) -> str:
    part = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "text": text, "time": {"start": 1}}
    return orjson.dumps(part).decode()


Growth = tuple[PartDelta, str | None, int]


def growth(text: str, size: int, whole_part: str | None = None, generation: int = 1, after: int = 0) -> Growth:
    """As it comes from another server."""
    render = partial(str.encode, whole_part or "{}")
    delta = PartDelta("/d", "ses_1", "msg_1", "prt_1", text, size, render, generation=generation)
    return delta, whole_part, after


@pytest.fixture
def parts() -> RemoteParts:
    return RemoteParts()


def part_of(announced: PartDelta | Event | None) -> dict[str, Any]:
    assert announced is not None
    if isinstance(announced, Event):
        body: dict[str, Any] = orjson.loads(announced.payload)["properties"]["part"]
        return body
    rendered: dict[str, Any] = orjson.loads(announced.render())
    return rendered


def test_deltas_are_put_together_each_as_of_its_moment(parts: RemoteParts) -> None:
    first = parts.apply(*growth("Hel", 3, whole("Hel")))
    second = parts.apply(*growth("lo", 5))
    assert isinstance(first, PartDelta) and isinstance(second, PartDelta)
    assert (first.text, part_of(first)["text"]) == ("Hel", "Hel")
    assert (second.text, part_of(second)["text"]) == ("lo", "Hello")
    assert list(part_of(second)) == list(orjson.loads(whole("")))


def test_after_something_was_missed_the_part_is_shown_whole(parts: RemoteParts) -> None:
    parts.apply(*growth("Hel", 3, whole("Hel")))
    assert parts.apply(*growth("there", 11)) is None
    announced = parts.apply(*growth("!", 12, whole("Hello there!")))
    assert isinstance(announced, Event) and part_of(announced)["text"] == "Hello there!"
    assert isinstance(parts.apply(*growth(" On", 15)), PartDelta)


def test_a_part_that_is_not_known_waits_until_it_is_sent_whole(parts: RemoteParts) -> None:
    assert parts.apply(*growth("lo", 5)) is None
    assert isinstance(parts.apply(*growth("!", 6, whole("Hello!"))), Event)


def test_progress_without_text_is_passed_on(parts: RemoteParts) -> None:
    announced = parts.apply(*growth("", 0, whole("tool")))
    assert isinstance(announced, PartDelta) and announced.text == "" and part_of(announced)["text"] == "tool"


def test_what_an_older_generation_says_is_dropped(parts: RemoteParts) -> None:
    parts.apply(*growth("New", 3, whole("New"), generation=2))
    assert parts.apply(*growth(" old", 7, whole("New old"), generation=1)) is None


def test_streaming_parts_are_those_that_have_not_ended(parts: RemoteParts) -> None:
    parts.apply(*growth("Hello", 5, whole("Hello")))
    found = parts.streaming("/d")
    assert found.known == {"prt_1": 5} and [part_of(one)["text"] for one in found.events] == ["Hello"]
    assert parts.streaming("/other").events == []
    parts.ended("prt_1", 7)
    assert parts.streaming("/d").events == []


@pytest.mark.parametrize("ended", ["prt_1", "msg_1", "ses_1"])
@pytest.mark.parametrize("known", [True, False])
def test_what_was_said_before_the_end_and_comes_behind_it_is_dropped(parts: RemoteParts, ended: str, known: bool) -> None:
    if known:
        parts.apply(*growth("Hel", 3, whole("Hel"), after=6))
    parts.ended(ended, 7)
    late = [growth("Hello", 5, whole("Hello"), after=6), growth("lo", 5, whole("Hello"), after=6), growth("", 0, whole("tool"))]
    assert [parts.apply(*each) for each in late] == [None, None, None]
    assert parts.streaming("/d").events == []
    assert isinstance(parts.apply(*growth("", 0, whole("progress"), after=7)), PartDelta)


@pytest.mark.parametrize("again", [growth("Hello", 5, whole("Hello")), growth("lo", 5), growth("Hel", 3, whole("Hel"))])
def test_what_comes_twice_is_shown_once(parts: RemoteParts, again: Growth) -> None:
    parts.apply(*growth("Hel", 3, whole("Hel")))
    parts.apply(*growth("lo", 5))
    assert parts.apply(*again) is None
    assert part_of(parts.apply(*growth("!", 6)))["text"] == "Hello!"
