import pytest
from conversation import assistant, compaction, pending, running, subtask, text, tool, user

from app.schema.message import AssistantMessage, MessageWithParts
from app.turn.decide import (
    MAX_EMPTY_STEPS,
    MAX_INVALID_STEPS,
    MAX_SAME_STEPS,
    AskModel,
    Compact,
    GiveUp,
    Resume,
    RunSubtask,
    Stop,
    next_action,
)
from app.turn.ends import TurnFailure, to_message_error


def test_a_session_without_a_prompt_has_nothing_to_answer() -> None:
    assert isinstance(next_action([]), GiveUp)


def test_a_new_prompt_is_put_to_the_model() -> None:
    prompt = user(text())
    assert next_action([prompt]) == AskModel(prompt.info, None)


@pytest.mark.parametrize("finish", ["stop", "length", "content-filter", "error"])
def test_an_answered_prompt_ends_the_turn(finish: str) -> None:
    prompt = user(text())
    assert next_action([prompt, assistant(prompt, text(), finish=finish)]) == Stop()


@pytest.mark.parametrize("finish", ["tool-calls", "unknown"])
def test_after_tool_calls_or_an_unclear_end_the_model_is_asked_again(finish: str) -> None:
    prompt = user(text())
    answer = assistant(prompt, tool(), finish=finish)
    assert next_action([prompt, answer]) == AskModel(prompt.info, answer.info)


def test_a_stored_error_is_an_answer() -> None:
    prompt = user(text())
    failed = assistant(prompt, finish=None, error=to_message_error(TurnFailure("no")))
    assert next_action([prompt, failed]) == Stop()


def test_a_prompt_that_arrives_while_another_is_answered_gets_an_answer_of_its_own() -> None:
    first, second = user(text("one")), user(text("two"))
    answer = assistant(first, text(), finish="stop")
    assert next_action([first, second, answer]) == AskModel(second.info, answer.info)
    assert next_action([first, second, answer, assistant(second, text())]) == Stop()


def test_an_answer_that_is_still_open_does_not_end_the_turn() -> None:
    prompt = user(text())
    assert next_action([prompt, assistant(prompt, finish=None)]) == AskModel(prompt.info, None)


def _empty_steps(prompt: MessageWithParts, count: int) -> list[MessageWithParts]:
    return [assistant(prompt, text("half"), finish="unknown") for _ in range(count)]


def test_steps_without_an_end_or_a_call_are_bounded() -> None:
    prompt = user(text())
    assert isinstance(next_action([prompt, *_empty_steps(prompt, MAX_EMPTY_STEPS - 1)]), AskModel)
    assert isinstance(next_action([prompt, *_empty_steps(prompt, MAX_EMPTY_STEPS)]), GiveUp)


def test_a_call_between_them_makes_unclear_steps_count_anew() -> None:
    prompt = user(text())
    steps = [*_empty_steps(prompt, 2), assistant(prompt, tool(), finish="tool-calls"), *_empty_steps(prompt, 2)]
    assert isinstance(next_action([prompt, *steps]), AskModel)


def test_a_new_prompt_makes_unclear_steps_count_anew() -> None:
    first, second = user(text()), user(text())
    assert isinstance(next_action([first, *_empty_steps(first, MAX_EMPTY_STEPS), second]), AskModel)


def test_endless_unusable_calls_are_bounded() -> None:
    prompt = user(text())
    steps = [assistant(prompt, tool(name="invalid"), finish="tool-calls") for _ in range(MAX_INVALID_STEPS)]
    assert isinstance(next_action([prompt, *steps[1:]]), AskModel)
    assert isinstance(next_action([prompt, *steps]), GiveUp)


def test_one_usable_call_among_unusable_ones_is_progress() -> None:
    prompt = user(text())
    steps = [assistant(prompt, tool(name="invalid"), finish="tool-calls") for _ in range(MAX_INVALID_STEPS - 1)]
    mixed = assistant(prompt, tool(name="invalid"), tool(name="read"), finish="tool-calls")
    assert isinstance(next_action([prompt, *steps, mixed]), AskModel)


def test_a_subtask_is_run_before_the_model_is_asked() -> None:
    prompt = user(subtask("look around"))
    decision = next_action([prompt])
    assert isinstance(decision, RunSubtask)
    assert (decision.user, decision.task.prompt) == (prompt.info, "look around")


def test_of_several_subtasks_in_a_prompt_the_last_is_run_and_no_other() -> None:
    prompt = user(subtask("one"), subtask("two"))
    decision = next_action([prompt])
    assert isinstance(decision, RunSubtask)
    assert decision.task.prompt == "two"
    done = assistant(prompt, tool(name="task"), finish="tool-calls", agent="general")
    assert next_action([prompt, done]) == AskModel(prompt.info, done.info)


@pytest.mark.parametrize("auto", [True, False])
def test_a_compaction_is_run_before_the_model_is_asked(auto: bool) -> None:
    before = user(text())
    request = user(compaction(auto))
    assert next_action([before, assistant(before, text()), request]) == Compact(request.info, auto)


def test_a_manual_compaction_ends_with_its_summary() -> None:
    request = user(compaction(auto=False))
    assert next_action([request, assistant(request, text(), summary=True, agent="compaction")]) == Stop()


def test_a_compaction_that_failed_does_not_stand_in_the_way_of_the_next_prompt() -> None:
    request = user(compaction(auto=False))
    failed = assistant(request, finish=None, error=to_message_error(TurnFailure("no")), summary=True)
    prompt = user(text())
    assert next_action([request, failed, prompt]) == AskModel(prompt.info, None)


def test_a_prompt_that_came_before_the_summary_is_answered_after_it() -> None:
    request, prompt = user(compaction(auto=False)), user(text())
    assert next_action([request, prompt]) == Compact(request.info, False)
    summary = assistant(request, text(), summary=True, agent="compaction")
    assert next_action([request, prompt, summary]) == AskModel(prompt.info, summary.info)


def test_of_open_tasks_the_oldest_message_comes_first() -> None:
    first, second = user(subtask("old")), user(subtask("new"))
    decision = next_action([first, second])
    assert isinstance(decision, RunSubtask)
    assert decision.task.prompt == "old"


def test_a_call_that_never_began_counts_as_a_call() -> None:
    prompt = user(text())
    steps = [assistant(prompt, tool(pending()), finish="unknown") for _ in range(MAX_EMPTY_STEPS)]
    assert isinstance(next_action([prompt, *steps]), AskModel)


def test_the_same_calls_over_and_over_are_bounded() -> None:
    prompt = user(text())
    steps = [assistant(prompt, tool(), finish="tool-calls") for _ in range(MAX_SAME_STEPS)]
    assert isinstance(next_action([prompt, *steps[1:]]), AskModel)
    assert isinstance(next_action([prompt, *steps]), GiveUp)
    other = assistant(prompt, tool(name="list"), finish="tool-calls")
    assert isinstance(next_action([prompt, *steps[:-1], other]), AskModel)


def test_an_answer_that_stands_open_is_taken_up_again() -> None:
    prompt = user(text())
    answer = assistant(prompt, tool(running()), finish=None)
    assert isinstance(answer.info, AssistantMessage)
    answer.info.time.completed = None
    assert next_action([prompt, answer]) == Resume(answer)
