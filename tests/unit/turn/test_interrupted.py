import pytest
from conversation import completed, failed, pending, reasoning, running, step_start, text, tool

from app.schema.part import Failed, Part, Span, ToolPart
from app.turn.context.history import INTERRUPTED
from app.turn.ends import interrupted_part


@pytest.mark.parametrize(
    ("state", "kept"),
    [(pending(), ({}, None)), (running(metadata={"sessionId": "ses_2"}), ({"path": "a"}, {"sessionId": "ses_2"}))],
)
def test_a_call_that_was_cut_off_ends_as_interrupted_with_what_it_had_shown(state: object, kept: tuple[object, ...]) -> None:
    part = interrupted_part(tool(state))  # type: ignore[arg-type]
    assert isinstance(part, ToolPart) and isinstance(part.state, Failed) and part.state.error == INTERRUPTED
    assert (part.state.input, part.state.metadata) == kept
    assert part.state.time.start <= part.state.time.end and (part.state.time.start == 1 or state == pending())


def test_a_text_that_was_cut_off_gets_an_end() -> None:
    part = interrupted_part(text("half", time=Span(start=1)))
    assert part is not None and part.time.end is not None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "part", [tool(completed()), tool(failed()), text(), text("x", time=Span(start=1, end=2)), reasoning(), step_start()]
)
def test_what_has_ended_is_left_alone(part: Part) -> None:
    assert interrupted_part(part) is None
