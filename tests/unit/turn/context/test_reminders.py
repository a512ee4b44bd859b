from conversation import agent, assistant, file, text, user

from app.schema.message import MessageWithParts
from app.schema.part import TextPart
from app.turn.context.history import remind
from app.workspace.agents import prompt_text


def texts(message: MessageWithParts) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


def test_a_plain_first_step_is_sent_as_it_is() -> None:
    history = [user(text("one"))]
    assert remind(history, agent("build"), 1) == history


def test_the_plan_agent_is_told_with_the_newest_prompt_that_it_plans() -> None:
    first, second = user(text("one")), user(text("two"))
    sent = remind([first, assistant(first, text()), second], agent("plan"), 1)
    assert texts(sent[0]) == ["one"]
    assert texts(sent[2]) == ["two", prompt_text("plan")]
    assert texts(second) == ["two"], "the stored conversation is untouched"


def test_the_reminder_stands_with_the_prompt_also_after_steps() -> None:
    prompt = user(text("one"))
    sent = remind([prompt, assistant(prompt, text(), finish="tool-calls", agent="plan")], agent("plan"), 2)
    assert texts(sent[0]) == ["one", prompt_text("plan")]


def test_build_is_told_that_planning_is_over() -> None:
    first, second = user(text("one"), agent="plan"), user(text("two"))
    sent = remind([first, assistant(first, text(), agent="plan"), second], agent("build"), 1)
    assert texts(sent[2]) == ["two", prompt_text("build-switch")]


def test_another_agent_is_not_told_of_planning() -> None:
    first, second = user(text("one"), agent="plan"), user(text("two"))
    history = [first, assistant(first, text(), agent="plan"), second]
    assert remind(history, agent("review"), 1) == history


def test_a_prompt_that_came_while_the_model_worked_is_marked_so() -> None:
    first, second = user(text("one")), user(text("two"), text("made", synthetic=True), text("x", ignored=True), text(" "), file())
    history = [first, assistant(first, text(), finish="tool-calls"), second]
    sent = remind(history, agent("build"), 2)
    wrapped, *others = texts(sent[2])
    assert wrapped.startswith("<system-reminder>") and wrapped.endswith("</system-reminder>") and "\ntwo\n" in wrapped
    assert others == ["made", "x", " "]
    assert texts(sent[0]) == ["one"]
    assert texts(second)[0] == "two", "the stored conversation is untouched"


def test_on_the_first_step_no_prompt_is_marked() -> None:
    first, second = user(text("one")), user(text("two"))
    history = [first, assistant(first, text()), second]
    assert remind(history, agent("build"), 1) == history


def test_before_any_step_is_finished_no_prompt_is_marked() -> None:
    first = user(text("one"))
    history = [first, assistant(first, finish=None), user(text("two"))]
    assert remind(history, agent("build"), 2) == history
