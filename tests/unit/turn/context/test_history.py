"""What a model is sent of a conversation. That every call has one result behind it, `test_model_requests.py` shows."""

from typing import Any

import conversation as talk
import pytest
from conversation import agent, assistant, file, text, tool, user

from app.providers import base
from app.providers.base import TextBlock
from app.schema.errors import unknown
from app.schema.message import MessageWithParts
from app.schema.part import AgentPart, PatchPart, SnapshotPart, TextPart
from app.turn.context.history import SUBTASK_RUN, remind, to_model_messages
from app.turn.ends import aborted
from app.workspace.agents import prompt_text

IDS: dict[str, Any] = {"id": "prt_1", "session_id": "ses_1", "message_id": "msg_0"}
FAILURE = unknown("no")
IMAGE = base.FileBlock("image/png", "data:image/png;base64,AAAA", "a.png")


def sent(*messages: MessageWithParts, to: str = "small-1") -> tuple[base.ModelMessage, ...]:
    return to_model_messages(messages, talk.model(to))


@pytest.mark.parametrize(
    ("message", "content"),
    [
        pytest.param(user(text("one"), text("two", synthetic=True)), [TextBlock("one"), TextBlock("two")], id="texts"),
        pytest.param(user(text("no", ignored=True), text("")), [], id="no ignored or empty texts"),
        pytest.param(user(), [], id="nothing of a message without parts"),
        pytest.param(user(talk.file()), [IMAGE], id="an image as a file"),
        pytest.param(user(talk.file("text/plain")), [], id="no file that stands there as text"),
        pytest.param(user(talk.file("application/x-directory")), [], id="nor a directory"),
        pytest.param(user(talk.compaction()), [TextBlock(prompt_text("compaction-question"))], id="a compaction's question"),
        pytest.param(user(talk.subtask()), [TextBlock(SUBTASK_RUN)], id="a subtask's fixed text"),
        pytest.param(user(AgentPart(**IDS, name="general")), [], id="no mention"),
        pytest.param(assistant("msg_0"), [], id="nothing of an answer without parts"),
        pytest.param(
            assistant("msg_0", PatchPart(**IDS, hash="a", files=["/a"]), SnapshotPart(**IDS, snapshot="a")), [], id="no trees"
        ),
        pytest.param(assistant("msg_0", talk.step_start(), talk.step_finish()), [], id="no bounds of steps"),
        pytest.param(assistant("msg_0", text("half"), error=FAILURE), [], id="no failed answer"),
        pytest.param(assistant("msg_0", talk.reasoning(), error=aborted()), [], id="no aborted one that said nothing"),
        pytest.param(
            assistant("msg_0", text("half"), error=aborted()), [TextBlock("half")], id="an aborted one that said something"
        ),
    ],
)
def test_a_model_is_sent(message: MessageWithParts, content: list[Any]) -> None:
    assert [block for turn in sent(message) for block in turn.content] == content


def test_steps_are_messages_of_their_own() -> None:
    one, two = tool(call_id="a"), tool(call_id="b")
    parts = (talk.step_start(), text("x"), one, talk.step_finish(), talk.step_start(), two, text("y"))
    assert sent(user(text("go")), assistant("msg_0", *parts)) == (
        base.UserTurn((TextBlock("go"),)),
        base.AssistantTurn((TextBlock("x"), base.ToolCallBlock("a", "read", {"path": "a"}))),
        base.ToolTurn((base.ToolResultBlock("a", "read", "done"),)),
        base.AssistantTurn((base.ToolCallBlock("b", "read", {"path": "a"}), TextBlock("y"))),
        base.ToolTurn((base.ToolResultBlock("b", "read", "done"),)),
    )


@pytest.mark.parametrize(("to", "is_same"), [("small-1", True), ("large-1", False)])
def test_what_a_provider_marked_goes_back_to_the_same_model_only(to: str, is_same: bool) -> None:
    mark = {"acme": {"signature": "s"}}
    said = talk.reasoning("hm", metadata=mark), text("yes", metadata=mark), tool(call_id="a", metadata=mark)
    answer, _ = sent(assistant("msg_0", *said), to=to)
    assert [block.metadata for block in answer.content] == [mark if is_same else None] * 3
    assert answer.content[0] == base.ReasoningBlock("hm", mark if is_same else None)


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (talk.completed("out"), ("out", False)),
        (talk.completed("out", attachments=[talk.file()]), ("out", False, (IMAGE,))),
        (talk.completed("out", compacted=5, attachments=[talk.file()]), ("[Old tool result content cleared]", False)),
        (talk.failed("Error: no"), ("Error: no", True)),
        (talk.pending(), ("[Tool execution was interrupted]", True)),
        (talk.running(), ("[Tool execution was interrupted]", True)),
    ],
)
def test_every_state_of_a_call_has_its_result(state: Any, result: tuple[Any, ...]) -> None:
    assert sent(assistant("msg_0", tool(state, call_id="a")))[1] == base.ToolTurn((base.ToolResultBlock("a", "read", *result),))


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
