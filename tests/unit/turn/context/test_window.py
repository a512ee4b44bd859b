"""When a model's window is full, and which old tool outputs are cleared."""

from types import SimpleNamespace
from typing import Any

import pytest
from conversation import assistant, completed, file, model, text, tool, user

from app.project.config.flags import Flags
from app.providers.base import ModelRequest, ToolSpec
from app.providers.estimate import FILE_TOKENS, estimate, estimate_messages, estimate_request
from app.schema.config import Config
from app.schema.message import MessageWithParts
from app.schema.model import ModelLimit
from app.schema.part import CacheTokens, Tokens
from app.turn.compaction import MINIMUM_TOKENS, PROTECTED_TOKENS, prunable_calls, prune_limits
from app.turn.context import window
from app.turn.context.history import to_model_messages
from app.turn.context.window import is_overflow, usable_tokens


def settings_with(compaction: dict[str, Any], **flags: Any) -> Any:
    """As much of an instance as the window's arithmetic asks for."""
    config = Config.model_validate({"compaction": compaction})
    return SimpleNamespace(config=config, flags=Flags(**flags), agents={"compaction": None})


@pytest.mark.parametrize(
    ("limit", "reserved", "flag", "usable"),
    [
        ({"context": 200_000, "output": 8_000}, 20_000, None, 180_000),
        ({"context": 200_000, "output": 8_000}, 1_000, None, 192_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, 20_000, None, 252_000),
        ({"context": 8_192, "output": 1_000}, 10_000, None, 4_096),
        ({"context": 200_000, "output": 8_000}, None, None, 192_000),
        ({"context": 200_000, "output": 64_000}, None, None, 168_000),
        ({"context": 200_000, "output": 0}, None, None, 168_000),
        ({"context": 200_000, "output": 64_000}, None, 50_000, 150_000),
        ({"context": 400_000, "input": 272_000, "output": 128_000}, None, None, 272_000),
        ({"context": 8_192, "output": 8_192}, None, None, 4_096),
    ],
)
def test_what_is_left_for_a_request(limit: dict[str, int], reserved: int | None, flag: int | None, usable: int) -> None:
    of = model(limit=ModelLimit(**limit))
    here = settings_with({} if reserved is None else {"reserved": reserved}, experimental_output_token_max=flag)
    assert usable_tokens(here, of) == usable
    assert [is_overflow(here, of, used) for used in (usable, usable + 1)] == [False, True]
    assert not is_overflow(settings_with({"auto": False}), of, 1_000_000), "it may be switched off"


def test_an_unknown_window_is_never_full() -> None:
    for of in (model(), model(limit=ModelLimit(context=0, output=8_000))):
        assert usable_tokens(settings_with({}), of) is None and not is_overflow(settings_with({}), of, 10_000_000)


def test_all_that_was_sent_and_answered_counts_whichever_part_a_cache_had_or_took() -> None:
    assert window.counted(Tokens(input=10, output=5, reasoning=3, cache=CacheTokens(read=20, write=100))) == 135
    assert window.counted(Tokens(output=5, cache=CacheTokens(write=100))) == 105
    assert window.counted(Tokens(output=5)) is None


def test_a_count_wins_over_an_estimate() -> None:
    history = [user(text("x" * 4_000)), assistant("msg_0", text("y" * 400))]
    answer = history[1].info
    assert window.used_tokens(answer, history, model()) == 1_100
    answer.tokens = Tokens(input=7, output=1)
    assert window.used_tokens(answer, history, model()) == 8


def test_everything_of_a_request_is_estimated() -> None:
    shown = completed("z" * 400, attachments=[file()])
    messages = to_model_messages([user(text("x" * 400), file()), assistant("msg_0", tool(shown))], model())
    assert estimate_messages(messages) == pytest.approx(200 + 2 * FILE_TOKENS, abs=10)
    offered = (ToolSpec("read", "d" * 400, {"type": "object"}),)
    request = ModelRequest(model=model(), system=("s" * 400,), messages=messages, session_id="ses_1", tools=offered)
    assert estimate_request(request) == pytest.approx(400 + 2 * FILE_TOKENS, abs=20)


PROMPT, ANSWER = user(), assistant("msg_u")
NEWER = [PROMPT, ANSWER, PROMPT, ANSWER]
PRUNED = assistant("msg_u", tool(completed("short", compacted=1)))


def outputs(count: int, name: str = "bash") -> MessageWithParts:
    """An answer whose calls had so many results of ten thousand tokens."""
    return assistant("msg_u", *(tool(completed("x" * 40_000), name, f"{number}") for number in range(count)))


@pytest.mark.parametrize(
    ("history", "cleared"),
    [
        pytest.param([PROMPT, outputs(8), *NEWER], ["3", "2", "1", "0"], id="what lies beyond the protected tokens"),
        pytest.param([PROMPT, outputs(7), *NEWER], ["2", "1", "0"], id="the minimum"),
        pytest.param([PROMPT, outputs(6), *NEWER], [], id="less than the minimum is left"),
        pytest.param([PROMPT, outputs(20), PROMPT, outputs(20)], [], id="the two newest turns are kept"),
        pytest.param([PROMPT, outputs(20, "skill"), *NEWER], [], id="skills are kept"),
        pytest.param(
            [PROMPT, outputs(20), PROMPT, assistant("msg_u", summary=True), PROMPT, ANSWER, *NEWER],
            [],
            id="nothing before a summary",
        ),
        pytest.param([PROMPT, outputs(20), PROMPT, PRUNED, PROMPT, ANSWER, *NEWER], [], id="nor before an earlier pruning"),
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
