import pytest
from conversation import completed, failed, pending, reasoning, running, step_start, text, tool

from app.context.history import INTERRUPTED
from app.schema.part import Part, Span, ToolPart
from app.schema.tool_state import Failed
from app.turn.interrupted import interrupted_part


@pytest.mark.parametrize("state", [pending(), running()])
def test_a_call_that_was_cut_off_ends_as_interrupted(state: object) -> None:
    settled = interrupted_part(tool(state))  # type: ignore[arg-type]
    assert isinstance(settled, ToolPart) and isinstance(settled.state, Failed)
    assert settled.state.error == INTERRUPTED
    assert settled.state.time.start <= settled.state.time.end


def test_what_a_running_call_had_shown_is_kept() -> None:
    settled = interrupted_part(tool(running(metadata={"sessionId": "ses_2"})))
    assert isinstance(settled, ToolPart) and isinstance(settled.state, Failed)
    assert settled.state.input == {"path": "a"} and settled.state.time.start == 1
    assert settled.state.metadata == {"sessionId": "ses_2"}


def test_a_text_that_was_cut_off_gets_an_end() -> None:
    settled = interrupted_part(text("half", time=Span(start=1)))
    assert settled is not None and settled.time.end is not None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "part", [tool(completed()), tool(failed()), text(), text("x", time=Span(start=1, end=2)), reasoning(), step_start()]
)
def test_what_has_ended_is_left_alone(part: Part) -> None:
    assert interrupted_part(part) is None
