import time

import pytest

from app.provider.base import (
    InvalidToolCall,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
)
from app.provider.openai_chat.think_tags import ThinkTags
from app.provider.wire.blocks import TurningBlocks
from app.provider.wire.sse import SseDecoder, parse_json
from app.provider.wire.tool_inputs import GatheredText, ToolInputs, read_call


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_found_however_the_bytes_are_cut(size: int) -> None:
    stream = ': note\r\nevent: a\r\ndata: {"t":"wörld 🌍"}\r\n\r\ndata: 1\ndata: 2\n\nid: 3\ndata:\n\ndata: [DONE]\n\n'.encode()
    decoder = SseDecoder()
    found = [data for at in range(0, len(stream), size) for data in decoder.feed(stream[at : at + size])]
    assert found == ['{"t":"wörld 🌍"}'.encode(), b"1\n2", b"[DONE]"]
    assert decoder.stray == b""


def test_one_event_of_many_pieces_takes_work_in_proportion_to_its_length() -> None:
    def seconds(pieces: int) -> float:
        decoder, piece = SseDecoder(), b"x" * 1000
        began = time.process_time()
        found = [data for chunk in (b"data:", *[piece] * pieces, b"\n\n") for data in decoder.feed(chunk)]
        assert found == [piece * pieces]
        return time.process_time() - began

    assert seconds(8_000) < 20 * min(seconds(1_000) for _ in range(3)) + 0.05


def test_a_last_event_without_its_empty_line_is_kept() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b'data: {"a":1}') == []
    assert decoder.close() == b'{"a":1}'


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    assert parse_json('{"a":"x\\ud83d"}') == {"a": "x�"}
    assert parse_json('{"a":"\\ud83d\\ude00"}') == {"a": "😀"}
    with pytest.raises(ValueError):
        parse_json("{nope")


def _split(text: str, size: int) -> str:
    """`T(…)` and `R(…)` for what was said as text and as reasoning."""
    think = ThinkTags()
    pieces = [piece for at in range(0, len(text), size) for piece in think.feed(text[at : at + size])] + think.flush()
    said = ""
    for kind, piece in pieces:
        mark = "T" if kind == "text" else "R"
        said = said[:-1] + piece + ")" if said.rpartition("(")[0][-1:] == mark else f"{said}{mark}({piece})"
    return said


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain a < b", "T(plain a < b)"),
        ("<think>\nplan\n</think>\n\nanswer", "R(plan\n)T(answer)"),
        ("<think></think>answer", "T(answer)"),
        ("a <think>b</think> c <think>d", "T(a )R(b)T(c )R(d)"),
        ("ends with <thi", "T(ends with <thi)"),
        ("<think>never closed </thi", "R(never closed </thi)"),
    ],
)
def test_think_tags(text: str, said: str, size: int) -> None:
    assert _split(text, size) == said


def test_text_that_cannot_begin_a_tag_is_not_held_back() -> None:
    think = ThinkTags()
    assert think.feed("a <") == [("text", "a ")]
    assert think.feed("b") == [("text", "<b")]


def test_text_and_reasoning_take_turns() -> None:
    blocks = TurningBlocks()
    events = [*blocks.say("reasoning", "r"), *blocks.say("text", ""), *blocks.say("text", "t"), *blocks.end(), *blocks.end()]
    assert events == [
        ReasoningStart("reasoning-1"),
        ReasoningDelta("reasoning-1", "r"),
        ReasoningEnd("reasoning-1"),
        TextStart("text-2"),
        TextDelta("text-2", "t"),
        TextEnd("text-2"),
    ]


def test_arguments() -> None:
    assert read_call("c", "t", " ") == ToolCall("c", "t", {})
    assert read_call("c", "t", '{"a": [1]}') == ToolCall("c", "t", {"a": [1]})
    for raw in ('{"a":', "[1]", '"x"'):
        call = read_call("c", "t", raw)
        assert isinstance(call, InvalidToolCall)
        assert call.raw == raw


def test_calls_that_a_server_gives_the_same_id_are_distinguished() -> None:
    inputs = ToolInputs(GatheredText())
    inputs.start(0, "call_0", "read")
    inputs.start(1, "call_0", "read")
    inputs.start(1, "call_0", "")
    first, second = inputs.finish_all()
    assert first.call_id == "call_0"
    assert second.call_id != "call_0" and second.call_id
