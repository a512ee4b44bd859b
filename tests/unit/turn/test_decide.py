from typing import Any

import pytest
from conversation import assistant, compaction, pending, running, subtask, text, tool, user

from app.schema.errors import unknown
from app.schema.message import MessageWithParts
from app.turn.decide import (
    MAX_EMPTY_STEPS,
    MAX_INVALID_STEPS,
    MAX_SAME_STEPS,
    Compact,
    GiveUp,
    RequestAnswer,
    Resume,
    RunSubtask,
    next_action,
)

FAILURE = unknown("no")
FIRST, LATER, TASKS, TASK, OLD = (
    user(text()),
    user(text()),
    user(subtask("one"), subtask("two")),
    user(subtask()),
    user(subtask()),
)
ANSWER, CALLED = assistant(FIRST, text()), assistant(FIRST, tool(), finish="tool-calls")
UNCLEAR, UNBEGUN = assistant(FIRST, text("half"), finish="unknown"), assistant(FIRST, tool(pending()), finish="unknown")
UNUSABLE = assistant(FIRST, tool(name="invalid"), finish="tool-calls")
MIXED = assistant(FIRST, tool(name="invalid"), tool(name="read"), finish="tool-calls")
LISTED = assistant(FIRST, tool(name="list"), finish="tool-calls")
RAN = assistant(TASKS, tool(name="task"), finish="tool-calls", agent="general")
MANUAL, AUTO = user(compaction(auto=False)), user(compaction(auto=True))
SUMMARY = assistant(MANUAL, text(), summary=True, agent="compaction")
UNSUMMARISED = assistant(MANUAL, finish=None, error=FAILURE, summary=True)
OPEN = assistant(FIRST, tool(running()), finish=None)
OPEN.info.time.completed = None


@pytest.mark.parametrize(
    ("history", "decision"),
    [
        pytest.param([FIRST], RequestAnswer(FIRST.info, None), id="a new prompt"),
        *(
            pytest.param([FIRST, assistant(FIRST, finish=end)], None, id=end)
            for end in ("stop", "length", "content-filter", "error")
        ),
        pytest.param([FIRST, CALLED], RequestAnswer(FIRST.info, CALLED.info), id="after tool calls"),
        pytest.param([FIRST, UNCLEAR], RequestAnswer(FIRST.info, UNCLEAR.info), id="after an unclear end"),
        pytest.param([FIRST, assistant(FIRST, finish=None, error=FAILURE)], None, id="a stored error is an answer"),
        pytest.param([FIRST, LATER, ANSWER], RequestAnswer(LATER.info, ANSWER.info), id="a prompt that came meanwhile"),
        pytest.param([FIRST, LATER, ANSWER, assistant(LATER, text())], None, id="both are answered"),
        pytest.param([FIRST, assistant(FIRST, finish=None)], RequestAnswer(FIRST.info, None), id="an answer without an end"),
        pytest.param([FIRST, OPEN], Resume(OPEN), id="an answer that stands open"),
        pytest.param([TASK], RunSubtask(TASK.info, TASK.parts[0]), id="a subtask comes before the model"),
        pytest.param([TASKS], RunSubtask(TASKS.info, TASKS.parts[1]), id="of a prompt's subtasks the last"),
        pytest.param([TASKS, RAN], RequestAnswer(TASKS.info, RAN.info), id="and no other"),
        pytest.param([OLD, TASK], RunSubtask(TASK.info, OLD.parts[0]), id="of open tasks the oldest message's"),
        pytest.param([FIRST, ANSWER, MANUAL], Compact(MANUAL.info, False), id="a compaction that was asked for"),
        pytest.param([FIRST, ANSWER, AUTO], Compact(AUTO.info, True), id="a compaction of a full window"),
        pytest.param([MANUAL, SUMMARY], None, id="a compaction that was asked for ends with its summary"),
        pytest.param([MANUAL, UNSUMMARISED, LATER], RequestAnswer(LATER.info, None), id="a failed compaction is in nobody's way"),
        pytest.param([MANUAL, LATER], Compact(MANUAL.info, False), id="a prompt that comes before the summary waits for it"),
        pytest.param([MANUAL, LATER, SUMMARY], RequestAnswer(LATER.info, SUMMARY.info), id="and is answered after it"),
    ],
)
def test_what_a_turn_does_next(history: list[MessageWithParts], decision: Any) -> None:
    assert next_action(history) == decision


@pytest.mark.parametrize(
    ("history", "gives_up"),
    [
        pytest.param([], True, id="nothing to answer"),
        pytest.param([FIRST, *[UNCLEAR] * (MAX_EMPTY_STEPS - 1)], False, id="some unclear ends"),
        pytest.param([FIRST, *[UNCLEAR] * MAX_EMPTY_STEPS], True, id="one too many"),
        pytest.param([FIRST, *[UNCLEAR] * 2, CALLED, *[UNCLEAR] * 2], False, id="a call between them counts anew"),
        pytest.param([FIRST, *[UNCLEAR] * MAX_EMPTY_STEPS, LATER], False, id="so does a new prompt"),
        pytest.param([FIRST, *[UNBEGUN] * MAX_EMPTY_STEPS], False, id="a call that never began is one"),
        pytest.param([FIRST, *[UNUSABLE] * (MAX_INVALID_STEPS - 1)], False, id="some unusable calls"),
        pytest.param([FIRST, *[UNUSABLE] * MAX_INVALID_STEPS], True, id="one unusable call too many"),
        pytest.param([FIRST, *[UNUSABLE] * (MAX_INVALID_STEPS - 1), MIXED], False, id="a usable one among them is progress"),
        pytest.param([FIRST, *[CALLED] * (MAX_SAME_STEPS - 1)], False, id="the same call for a while"),
        pytest.param([FIRST, *[CALLED] * MAX_SAME_STEPS], True, id="the same call over and over"),
        pytest.param([FIRST, *[CALLED] * (MAX_SAME_STEPS - 1), LISTED], False, id="another call at last"),
    ],
)
def test_a_model_that_makes_no_progress_is_given_up(history: list[MessageWithParts], gives_up: bool) -> None:
    assert isinstance(next_action(history), GiveUp if gives_up else RequestAnswer)
