"""Which old tool outputs are cleared."""

import pytest
from conversation import assistant, completed, tool, user

from app.schema.message import MessageWithParts
from app.turn.compaction import MINIMUM_TOKENS, PROTECTED_TOKENS, prunable_calls, prune_limits
from app.turn.context.window import estimate

PROMPT, ANSWER = user(), assistant("msg_u")
NEWER = [PROMPT, ANSWER, PROMPT, ANSWER]
PRUNED = assistant("msg_u", tool(completed("short", compacted=1)))


def outputs(count: int, name: str = "bash") -> MessageWithParts:
    """An answer whose calls had so many results of ten thousand tokens."""
    return assistant("msg_u", *(tool(completed("x" * 40_000), name, f"{number}") for number in range(count)))


@pytest.mark.parametrize(
    ("history", "cleared"),
    [
        ([PROMPT, outputs(8), *NEWER], ["3", "2", "1", "0"]),
        ([PROMPT, outputs(7), *NEWER], ["2", "1", "0"]),
        ([PROMPT, outputs(6), *NEWER], []),
        ([PROMPT, outputs(20), PROMPT, outputs(20)], []),
        ([PROMPT, outputs(20, "skill"), *NEWER], []),
        ([PROMPT, outputs(20), PROMPT, assistant("msg_u", summary=True), PROMPT, ANSWER, *NEWER], []),
        ([PROMPT, outputs(20), PROMPT, PRUNED, PROMPT, ANSWER, *NEWER], []),
    ],
    ids=[
        "what lies beyond the protected tokens",
        "the minimum",
        "less than the minimum is left",
        "the two newest turns are kept",
        "skills are kept",
        "nothing before a summary is looked at",
        "nor before an earlier pruning",
    ],
)
def test_old_outputs_are_cleared_beyond_what_is_protected(history: list[MessageWithParts], cleared: list[str]) -> None:
    assert (PROTECTED_TOKENS, MINIMUM_TOKENS) == (40_000, 20_000)
    assert [part.call_id for part in prunable_calls(history, None)] == cleared


@pytest.mark.parametrize(
    ("usable", "limits"),
    [(None, (40_000, 20_000)), (168_000, (40_000, 20_000)), (92_000, (40_000, 20_000)), (28_000, (7_000, 3_500))],
)
def test_of_a_small_window_only_a_part_is_protected(usable: int | None, limits: tuple[int, int]) -> None:
    assert prune_limits(usable) == limits


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("x" * 400, 100), ("会话系统", 3), ("ab会话", 2)])
def test_chinese_counts_for_more_tokens_than_english(text: str, tokens: int) -> None:
    assert estimate(text) == tokens
