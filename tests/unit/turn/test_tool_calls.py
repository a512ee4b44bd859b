import pytest
from conversation import completed, pending, running, tool

from app.schema.part import ToolPart
from app.turn.tool_calls import is_looping

READ, LIST, DONE, COMING = tool(running()), tool(running(), "list"), tool(completed()), tool(pending())


@pytest.mark.parametrize(
    ("before", "newest", "path", "is_loop"),
    [
        ([READ, READ, READ], "read", "a", True),
        ([READ, READ], "read", "a", False),
        ([DONE, DONE, READ], "read", "a", True),
        ([READ, READ, LIST, READ], "read", "a", False),
        ([READ, READ, READ], "read", "b", False),
        ([LIST, READ, READ, READ], "read", "a", True),
        ([READ, READ, READ, LIST], "list", "a", False),
        ([COMING, READ, READ], "read", "a", False),
    ],
    ids=["three", "two", "of earlier steps", "another between", "other arguments", "the newest", "another now", "still coming"],
)
def test_the_third_identical_call_in_a_row_is_a_doom_loop(before: list[ToolPart], newest: str, path: str, is_loop: bool) -> None:
    assert is_looping(before, newest, {"path": path}) is is_loop
