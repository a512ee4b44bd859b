"""When a model's window is full."""

from dataclasses import dataclass
from typing import Any

import pytest
from conversation import assistant, completed, file, model, text, tool, user

from app.project.config.flags import Flags
from app.providers.base import ModelRequest, ToolSpec
from app.schema.config import Config
from app.schema.message import AssistantMessage
from app.schema.model import ModelLimit
from app.schema.part import CacheTokens, Tokens
from app.turn.context.history import to_model_messages
from app.turn.context.window import (
    FILE_TOKENS,
    counted,
    estimate_messages,
    estimate_request,
    is_overflow,
    usable_tokens,
    used_tokens,
)


@dataclass
class InstanceSettings:
    """As much of an instance as the window's arithmetic asks for."""

    config: Config
    flags: Flags


def settings_with(config: dict[str, Any] | None = None, **flags: Any) -> Any:
    return InstanceSettings(Config.model_validate(config or {}), Flags(**flags))


@pytest.mark.parametrize(
    ("limit", "reserved", "usable"),
    [
        (ModelLimit(context=200_000, output=8_000), 20_000, 180_000),
        (ModelLimit(context=200_000, output=8_000), 1_000, 192_000),
        (ModelLimit(context=400_000, input=272_000, output=128_000), 20_000, 252_000),
        (ModelLimit(context=8_192, output=1_000), 10_000, 4_096),
    ],
)
def test_the_configuration_reserves_tokens(limit: ModelLimit, reserved: int, usable: int) -> None:
    assert usable_tokens(settings_with({"compaction": {"reserved": reserved}}), model(limit=limit)) == usable


@pytest.mark.parametrize(
    ("limit", "flag", "usable"),
    [
        (ModelLimit(context=200_000, output=8_000), None, 192_000),
        (ModelLimit(context=200_000, output=64_000), None, 168_000),
        (ModelLimit(context=200_000, output=0), None, 168_000),
        (ModelLimit(context=200_000, output=64_000), 50_000, 150_000),
        (ModelLimit(context=400_000, input=272_000, output=128_000), None, 272_000),
        (ModelLimit(context=8_192, output=8_192), None, 4_096),
        (ModelLimit(context=0, output=8_000), None, None),
    ],
)
def test_what_is_left_for_a_request(limit: ModelLimit, flag: int | None, usable: int | None) -> None:
    of = model(limit=limit)
    assert usable_tokens(settings_with(experimental_output_token_max=flag), of) == usable
    if usable is not None:
        assert [is_overflow(settings_with(experimental_output_token_max=flag), of, used) for used in (usable, usable + 1)] == [
            False,
            True,
        ]


def test_it_may_be_switched_off() -> None:
    here = settings_with({"compaction": {"auto": False}})
    assert not is_overflow(here, model(limit=ModelLimit(context=10_000, output=1_000)), 1_000_000)


def test_an_unknown_window_is_never_full() -> None:
    assert not is_overflow(settings_with(), model(), 10_000_000)


def test_what_was_sent_and_answered_counts_not_the_reasoning_nor_what_was_written_to_the_cache() -> None:
    assert counted(Tokens(input=10, output=5, reasoning=100, cache=CacheTokens(read=20, write=100))) == 35
    assert counted(Tokens(output=5)) is None


def test_a_count_wins_over_an_estimate() -> None:
    history = [user(text("x" * 4_000)), assistant("msg_0", text("y" * 400))]
    answer = history[1].info
    assert isinstance(answer, AssistantMessage)
    assert used_tokens(answer, history, model()) == 1_100
    answer.tokens = Tokens(input=7, output=1)
    assert used_tokens(answer, history, model()) == 8


def test_everything_of_a_request_is_estimated() -> None:
    shown = completed("z" * 400, attachments=[file()])
    messages = to_model_messages([user(text("x" * 400), file()), assistant("msg_0", tool(shown, name="read"))], model())
    assert estimate_messages(messages) == pytest.approx(200 + 2 * FILE_TOKENS, abs=10)
    offered = (ToolSpec("read", "d" * 400, {"type": "object"}),)
    request = ModelRequest(model=model(), system=("s" * 400,), messages=messages, session_id="ses_1", tools=offered)
    assert estimate_request(request) == pytest.approx(400 + 2 * FILE_TOKENS, abs=20)
