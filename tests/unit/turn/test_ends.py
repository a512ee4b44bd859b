"""How a turn ends: at its deadline, which is found at the end of a conversation however long that is, and what was cut off."""

from collections.abc import Sequence
from typing import Any

import pytest
from conversation import completed, failed, pending, reasoning, running, step_start, text, tool
from session_parts import assistant, user

from app.schema.message import Message, MessageWithParts
from app.schema.part import Failed, Part, Span, ToolPart
from app.turn.context.history import INTERRUPTED
from app.turn.ends import earliest, interrupted_part

ASKED, ANSWERED = user("msg_1", deadline=5), assistant("msg_2", "msg_1", finish="stop")


class Looked(Sequence[Any]):
    """Counts the messages that are looked at."""

    def __init__(self, *infos: Message) -> None:
        self._messages = [MessageWithParts(info=info, parts=[]) for info in infos]
        self.looks = 0

    def __getitem__(self, position: Any) -> Any:
        self.looks += 1
        return self._messages[position]

    def __len__(self) -> int:
        return len(self._messages)


@pytest.mark.parametrize("turns", [2, 200])
def test_only_what_stands_behind_the_last_final_answer_is_looked_at(turns: int) -> None:
    history = Looked(*[ASKED, ANSWERED] * turns, user("msg_y", deadline=9), user("msg_z", deadline=7))
    assert earliest(history) == 7
    assert history.looks <= 7


@pytest.mark.parametrize(("finish", "deadline"), [("stop", None), ("tool-calls", 5)])
def test_prompts_with_a_final_answer_have_no_deadline_any_more(finish: str, deadline: int | None) -> None:
    assert earliest(Looked(ASKED, assistant("msg_2", "msg_1", finish=finish))) == deadline


@pytest.mark.parametrize(
    ("state", "kept"),
    [(pending(), ({}, None)), (running(metadata={"sessionId": "ses_2"}), ({"path": "a"}, {"sessionId": "ses_2"}))],
)
def test_a_call_that_was_cut_off_ends_as_interrupted_with_what_it_had_shown(state: object, kept: tuple[object, ...]) -> None:
    part = interrupted_part(tool(state))
    assert isinstance(part, ToolPart) and isinstance(part.state, Failed) and part.state.error == INTERRUPTED
    assert (part.state.input, part.state.metadata) == kept
    assert part.state.time.start <= part.state.time.end and (part.state.time.start == 1 or state == pending())


def test_a_text_that_was_cut_off_gets_an_end() -> None:
    part = interrupted_part(text("half", time=Span(start=1)))
    assert part is not None and part.time.end is not None


@pytest.mark.parametrize(
    "part", [tool(completed()), tool(failed()), text(), text("x", time=Span(start=1, end=2)), reasoning(), step_start()]
)
def test_what_has_ended_is_left_alone(part: Part) -> None:
    assert interrupted_part(part) is None
