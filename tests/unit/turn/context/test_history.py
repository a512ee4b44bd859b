from typing import Any

import pytest
from conversation import (
    assistant,
    compaction,
    completed,
    failed,
    file,
    model,
    pending,
    reasoning,
    running,
    step_finish,
    step_start,
    subtask,
    text,
    tool,
    user,
)
from hypothesis import given
from hypothesis import strategies as st

from app.providers.base import (
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    UserTurn,
)
from app.schema.message import MessageWithParts
from app.schema.part import AgentPart, PatchPart, SnapshotPart
from app.turn.context.history import SUBTASK_RUN, to_model_messages
from app.turn.ends import TurnFailure, aborted, to_message_error
from app.workspace.agents import prompt_text

SAME = model("small-1")
OTHER = model("large-1")


def sent(*messages: MessageWithParts, to: Any = SAME) -> tuple[ModelMessage, ...]:
    return to_model_messages(messages, to)


def test_texts_of_a_prompt_are_sent_also_synthetic_ones() -> None:
    assert sent(user(text("one"), text("two", synthetic=True))) == (UserTurn((TextBlock("one"), TextBlock("two"))),)


def test_ignored_and_empty_texts_are_not_sent() -> None:
    assert sent(user(text("no", ignored=True), text(""))) == ()


def test_a_message_without_parts_is_left_out() -> None:
    assert sent(user(), assistant("msg_0")) == ()


def test_an_image_is_sent_as_a_file() -> None:
    url = "data:image/png;base64,AAAA"
    assert sent(user(file("image/png", url, "a.png"))) == (UserTurn((FileBlock("image/png", url, "a.png"),)),)


@pytest.mark.parametrize("mime", ["text/plain", "application/x-directory"])
def test_a_file_that_stands_there_as_text_is_not_sent_again(mime: str) -> None:
    assert sent(user(file(mime))) == ()


def test_a_compaction_and_a_subtask_are_sent_as_fixed_texts() -> None:
    assert sent(user(compaction())) == (UserTurn((TextBlock(prompt_text("compaction-question")),)),)
    assert sent(user(subtask())) == (UserTurn((TextBlock(SUBTASK_RUN),)),)


def test_what_only_people_need_is_not_sent() -> None:
    ids = {"session_id": "ses_1", "message_id": "msg_0"}
    mention = AgentPart(id="prt_1", name="general", **ids)
    patch = PatchPart(id="prt_2", hash="a", files=["/a"], **ids)
    snapshot = SnapshotPart(id="prt_3", snapshot="a", **ids)
    assert sent(user(mention)) == ()
    assert sent(assistant("msg_0", step_start(), patch, snapshot, step_finish())) == ()


def test_a_failed_answer_is_left_out() -> None:
    error = to_message_error(TurnFailure("no"))
    assert sent(assistant("msg_0", step_start(), text("half"), error=error)) == ()


@pytest.mark.parametrize(("parts", "kept"), [([step_start(), reasoning()], False), ([step_start(), text("half")], True)])
def test_an_aborted_answer_is_kept_when_it_had_said_something(parts: list[Any], kept: bool) -> None:
    assert bool(sent(assistant("msg_0", *parts, error=aborted(), finish=None))) is kept


def test_steps_are_messages_of_their_own() -> None:
    one, two = tool(call_id="a"), tool(call_id="b")
    assert sent(assistant("msg_0", step_start(), text("x"), one, step_finish(), step_start(), two, text("y"))) == (
        AssistantTurn((TextBlock("x"), ToolCallBlock("a", "read", {"path": "a"}))),
        ToolTurn((ToolResultBlock("a", "read", "done"),)),
        AssistantTurn((ToolCallBlock("b", "read", {"path": "a"}), TextBlock("y"))),
        ToolTurn((ToolResultBlock("b", "read", "done"),)),
    )


def test_what_a_provider_marked_goes_back_to_the_same_model_only() -> None:
    mark = {"acme": {"signature": "s"}}
    answer = assistant(
        "msg_0", reasoning("hm", metadata=mark), text("yes", metadata=mark), tool(call_id="a", metadata=mark), model_id="small-1"
    )
    same, _ = sent(answer, to=SAME)
    other, _ = sent(answer, to=OTHER)
    assert [block.metadata for block in same.content] == [mark, mark, mark]  # type: ignore[union-attr]
    assert [block.metadata for block in other.content] == [None, None, None]  # type: ignore[union-attr]
    assert other.content[0] == ReasoningBlock("hm")


@pytest.mark.parametrize(
    ("state", "text", "is_error"),
    [
        (completed("out"), "out", False),
        (completed("out", compacted=5), "[Old tool result content cleared]", False),
        (failed("Error: no"), "Error: no", True),
        (pending(), "[Tool execution was interrupted]", True),
        (running(), "[Tool execution was interrupted]", True),
    ],
)
def test_every_state_of_a_call_has_its_result(state: Any, text: str, is_error: bool) -> None:
    assert sent(assistant("msg_0", tool(state, call_id="a")))[1] == ToolTurn((ToolResultBlock("a", "read", text, is_error),))


def test_a_result_s_files_are_sent_with_it_until_it_is_cleared() -> None:
    shown = completed("out", attachments=[file()])
    _, result = sent(assistant("msg_0", tool(shown)))
    assert result.content[0].files == (FileBlock("image/png", "data:image/png;base64,AAAA", "a.png"),)  # type: ignore[union-attr]
    _, cleared = sent(assistant("msg_0", tool(completed("out", compacted=1, attachments=[file()]))))
    assert cleared.content[0].files == ()  # type: ignore[union-attr]


states = st.sampled_from([completed(), completed(compacted=1), failed(), pending(), running()])
assistant_parts = st.one_of(
    st.builds(text, st.sampled_from(["", "said"])),
    st.builds(reasoning, st.sampled_from(["", "thought"])),
    st.builds(tool, states),
    st.builds(step_start),
    st.builds(step_finish),
)
errors = st.sampled_from([None, None, aborted(), to_message_error(TurnFailure("no"))])


@st.composite
def messages(draw: st.DrawFn) -> MessageWithParts:
    if draw(st.booleans()):
        return user(*draw(st.lists(st.one_of(st.builds(text), st.builds(file), st.builds(subtask)), max_size=3)))
    parts = draw(st.lists(assistant_parts, max_size=6))
    return assistant("msg_0", *parts, error=draw(errors), model_id=draw(st.sampled_from(["small-1", "large-1"])))


@given(st.lists(messages(), max_size=6))
def test_every_call_that_is_sent_has_exactly_one_result_right_after_it(history: list[MessageWithParts]) -> None:
    turns = sent(*history)
    for place, turn in enumerate(turns):
        assert turn.content
        if isinstance(turn, AssistantTurn):
            calls = [block.call_id for block in turn.content if isinstance(block, ToolCallBlock)]
            after = turns[place + 1] if place + 1 < len(turns) else None
            results = [block.call_id for block in after.content] if isinstance(after, ToolTurn) else []
            assert results == calls
        if isinstance(turn, ToolTurn):
            assert isinstance(turns[place - 1], AssistantTurn) and place > 0
