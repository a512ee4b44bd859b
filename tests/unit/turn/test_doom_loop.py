from conversation import completed, pending, running, tool

from app.schema.part import ToolPart
from app.turn.tool_calls import is_looping

SAME = {"path": "a"}


def calls(*names: str) -> list[ToolPart]:
    return [tool(running(), name=name) for name in names]


def test_three_identical_calls_are_a_loop() -> None:
    assert is_looping(calls("read", "read", "read"), "read", SAME)


def test_two_are_not() -> None:
    assert not is_looping(calls("read", "read"), "read", SAME)


def test_calls_of_earlier_steps_count() -> None:
    earlier = [tool(completed(), name="read"), tool(completed(), name="read")]
    assert is_looping([*earlier, *calls("read")], "read", SAME)


def test_another_call_between_them_breaks_the_loop() -> None:
    assert not is_looping(calls("read", "read", "list", "read"), "read", SAME)


def test_other_arguments_are_no_loop() -> None:
    assert not is_looping(calls("read", "read", "read"), "read", {"path": "b"})


def test_only_the_newest_calls_count() -> None:
    assert is_looping(calls("list", "read", "read", "read"), "read", SAME)
    assert not is_looping(calls("read", "read", "read", "list"), "list", SAME)


def test_a_call_whose_arguments_are_still_coming_does_not_count() -> None:
    assert not is_looping([tool(pending()), *calls("read", "read")], "read", SAME)
