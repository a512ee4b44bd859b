"""What stands with a prompt for the model alone; the stored conversation is untouched."""

import pytest
from conversation import agent, assistant, file, text, user

from app.schema.message import MessageWithParts
from app.schema.part import TextPart
from app.turn.context.history import remind
from app.workspace.agents import prompt_text

FIRST, SECOND, PLANNED = user(text("one")), user(text("two")), user(text("one"), agent="plan")
ANSWER, STEP = assistant(FIRST, text()), assistant(FIRST, text(), finish="tool-calls", agent="plan")
PLAN = assistant(PLANNED, text(), agent="plan")


def texts(message: MessageWithParts) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, TextPart)]


@pytest.mark.parametrize(
    ("history", "name", "step"),
    [
        ([FIRST], "build", 1),
        ([PLANNED, PLAN, SECOND], "review", 1),
        ([FIRST, ANSWER, SECOND], "build", 1),
        ([FIRST, assistant(FIRST, finish=None), SECOND], "build", 2),
    ],
    ids=["a plain first step", "another agent than build", "no prompt is marked on the first step", "nor before one is finished"],
)
def test_most_is_sent_as_it_is(history: list[MessageWithParts], name: str, step: int) -> None:
    assert remind(history, agent(name), step) == history


@pytest.mark.parametrize(
    ("history", "name", "step", "prompt", "told"),
    [
        ([FIRST, ANSWER, SECOND], "plan", 1, 2, ["two", prompt_text("plan")]),
        ([FIRST, STEP], "plan", 2, 0, ["one", prompt_text("plan")]),
        ([PLANNED, PLAN, SECOND], "build", 1, 2, ["two", prompt_text("build-switch")]),
    ],
    ids=["the plan agent plans", "also after steps", "build builds what was planned"],
)
def test_with_the_newest_prompt_an_agent_is_told_whether_it_plans(
    history: list[MessageWithParts], name: str, step: int, prompt: int, told: list[str]
) -> None:
    before = [texts(message) for message in history]
    sent = [texts(message) for message in remind(history, agent(name), step)]
    assert sent == [*before[:prompt], told, *before[prompt + 1 :]]
    assert [texts(message) for message in history] == before


def test_a_prompt_that_came_while_the_model_worked_is_marked_so() -> None:
    second = user(text("two"), text("made", synthetic=True), text("x", ignored=True), text(" "), file())
    sent = remind([FIRST, assistant(FIRST, text(), finish="tool-calls"), second], agent("build"), 2)
    wrapped, *others = texts(sent[2])
    assert wrapped.startswith("<system-reminder>") and wrapped.endswith("</system-reminder>") and "\ntwo\n" in wrapped
    assert (others, texts(sent[0]), texts(second)[0]) == (["made", "x", " "], ["one"], "two")
