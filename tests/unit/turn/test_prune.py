"""Which old tool outputs are cleared."""

import pytest

from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.part import Completed, CompletedTime, ModelRef, ToolPart
from app.turn.compaction import MINIMUM_TOKENS, PROTECTED_TOKENS, prunable_calls, prune_limits
from app.turn.context.window import estimate

MODEL = ModelRef(provider_id="p", model_id="m")
TEN_THOUSAND = "x" * 40_000


def prompt() -> MessageWithParts:
    info = UserMessage(id="msg_u", session_id="ses_1", time=UserTime(created=0), agent="build", model=MODEL)
    return MessageWithParts(info=info, parts=[])


def answer(*outputs: str, tool: str = "bash", compacted: int | None = None, summary: bool | None = None) -> MessageWithParts:
    info = AssistantMessage(
        id="msg_a",
        session_id="ses_1",
        time=AssistantTime(created=0, completed=1),
        parent_id="msg_u",
        model_id="m",
        provider_id="p",
        mode="build",
        agent="build",
        path=MessagePath(cwd="/", root="/"),
        summary=summary,
        finish="stop",
    )
    return MessageWithParts(info=info, parts=[call(f"{n}", output, tool, compacted) for n, output in enumerate(outputs)])


def call(name: str, output: str, tool: str, compacted: int | None) -> ToolPart:
    time = CompletedTime(start=0, end=1, compacted=compacted)
    state = Completed(input={}, output=output, title="", metadata={}, time=time)
    return ToolPart(id=f"prt_{name}", session_id="ses_1", message_id="msg_a", call_id=name, tool=tool, state=state)


def cleared(*messages: MessageWithParts) -> list[str]:
    return [part.call_id for part in prunable_calls([*messages, prompt(), answer(), prompt(), answer()], None)]


def test_what_lies_beyond_the_protected_tokens_is_cleared() -> None:
    assert PROTECTED_TOKENS == 40_000
    assert cleared(prompt(), answer(*[TEN_THOUSAND] * 8)) == ["3", "2", "1", "0"]


def test_less_than_the_minimum_is_left() -> None:
    assert MINIMUM_TOKENS == 20_000
    assert cleared(prompt(), answer(*[TEN_THOUSAND] * 6)) == []
    assert cleared(prompt(), answer(*[TEN_THOUSAND] * 7)) == ["2", "1", "0"]


def test_the_two_newest_turns_are_kept() -> None:
    history = [prompt(), answer(*[TEN_THOUSAND] * 20), prompt(), answer(*[TEN_THOUSAND] * 20)]
    assert prunable_calls(history, None) == []


def test_outputs_of_skills_are_kept() -> None:
    assert cleared(prompt(), answer(*[TEN_THOUSAND] * 20, tool="skill")) == []


@pytest.mark.parametrize("wall", [answer(summary=True), answer("short", compacted=1)])
def test_nothing_before_a_summary_or_an_earlier_pruning_is_looked_at(wall: MessageWithParts) -> None:
    assert cleared(prompt(), answer(*[TEN_THOUSAND] * 20), prompt(), wall, prompt(), answer("short")) == []


@pytest.mark.parametrize(
    ("usable", "limits"),
    [
        (None, (40_000, 20_000)),
        (168_000, (40_000, 20_000)),
        (92_000, (40_000, 20_000)),
        (28_000, (7_000, 3_500)),
    ],
)
def test_of_a_small_window_only_a_part_is_protected(usable: int | None, limits: tuple[int, int]) -> None:
    assert prune_limits(usable) == limits


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("x" * 400, 100), ("会话系统", 3), ("ab会话", 2)])
def test_chinese_counts_for_more_tokens_than_english(text: str, tokens: int) -> None:
    assert estimate(text) == tokens
