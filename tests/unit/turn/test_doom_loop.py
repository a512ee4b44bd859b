import pytest
from conversation import completed, pending, running, tool

from app.schema.part import ToolPart
from app.turn.tool_calls import is_looping

SAME = {"path": "a"}


def calls(*names: str) -> list[ToolPart]:
    return [tool(running(), name=name) for name in names]


@pytest.mark.parametrize(
    ("before", "newest", "arguments", "is_loop"),
    [
        (calls("read", "read", "read"), "read", SAME, True),
        (calls("read", "read"), "read", SAME, False),
        ([tool(completed(), name="read"), tool(completed(), name="read"), *calls("read")], "read", SAME, True),
        (calls("read", "read", "list", "read"), "read", SAME, False),
        (calls("read", "read", "read"), "read", {"path": "b"}, False),
        (calls("list", "read", "read", "read"), "read", SAME, True),
        (calls("read", "read", "read", "list"), "list", SAME, False),
        ([tool(pending()), *calls("read", "read")], "read", SAME, False),
    ],
    ids=["three", "two", "of earlier steps", "another between", "other arguments", "the newest", "another now", "still coming"],
)
def test_three_identical_calls_in_a_row_are_a_loop(
    before: list[ToolPart], newest: str, arguments: dict[str, str], is_loop: bool
) -> None:
    assert is_looping(before, newest, arguments) is is_loop
