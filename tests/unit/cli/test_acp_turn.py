"""What an editor is told of the tokens of a turn."""

from typing import Any

from app.cli.acp.transcript import EditorTurn, context_used


def step(output: int, reasoning: int) -> dict[str, Any]:
    """`output` includes `reasoning`, as in every part of a session."""
    return {"input": 100, "output": output, "reasoning": reasoning, "cache": {"read": 30, "write": 4}}


async def test_each_token_is_of_one_kind_and_the_total_is_their_sum() -> None:
    turn = EditorTurn("msg_1", step_tokens=[step(50, 20), step(7, 0)])
    usage = turn.usage()
    assert usage is not None
    kinds = (usage.input_tokens, usage.output_tokens, usage.thought_tokens, usage.cached_read_tokens, usage.cached_write_tokens)
    assert kinds == (200, 37, 20, 60, 8) and usage.total_tokens == sum(kinds) == 325


def test_the_window_holds_reasoning_once() -> None:
    assert context_used(step(50, 20)) == 184
