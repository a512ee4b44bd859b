import time
from collections.abc import AsyncIterator

import httpx2
import pytest

from app.providers.answers import parse_json
from app.providers.base import (
    ApiFailure,
)
from app.providers.openai_chat import ThinkTags
from app.providers.sdk_adapter import WholeEvents


class Sent(httpx2.AsyncByteStream):
    def __init__(self, stream: bytes, size: int) -> None:
        self._chunks = [stream[at : at + size] for at in range(0, len(stream), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def read_of(stream: bytes, size: int) -> bytes:
    return b"".join([piece async for piece in WholeEvents(Sent(stream, size), 200, {}, "http://model.example/v1")])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (
            ': note\r\n\r\nid: 1\r\nevent: a\r\ndata: {"t":"wörld 🌍"}\r\n\r\n: ping\n\n\n\ndata: 1\ndata: 2\n\ndata: [DONE]\n\n',
            'id: 1\nevent: a\ndata: {"t":"wörld 🌍"}\n\ndata: 1\ndata: 2\n\ndata: [DONE]\n\n',
        ),
        ('id: 3\ndata:\n\nevent: ping\n\nretry: 1\n\ndata: {"a": 1}', 'data: {"a": 1}\n\n'),
        ('data: {"a": 1}\n\ndata: {"b": ', 'data: {"a": 1}\n\n'),
        (": still here\n\n", ""),
        (r'data: {"t":"\ud83d\ude00 \ud83d \\ud83d"}' + "\n\n", r'data: {"t":"\ud83d\ude00 \ufffd \\ud83d"}' + "\n\n"),
    ],
    ids=["events, notes and ends of lines", "without data", "cut off", "nothing", "halves of characters"],
)
async def test_an_sdk_reads_whole_events_of_whole_characters(sent: str, read: str, size: int) -> None:
    assert (await read_of(sent.encode(), size)).decode() == read


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("page", ["<html>\n\n<p>data: no</p>", '{"error": {"message": "quota"}}', "data is what\nyou want"])
async def test_a_page_is_no_stream(page: str, size: int) -> None:
    with pytest.raises(ApiFailure) as failed:
        await read_of(page.encode(), size)
    assert failed.value.body == page


async def test_one_event_of_many_pieces_takes_work_in_proportion_to_its_length() -> None:
    async def seconds(pieces: int) -> float:
        began = time.process_time()
        sent = b"data:" + b"x" * 1000 * pieces + b"\n\n"
        assert await read_of(sent, 1000) == sent
        return time.process_time() - began

    assert await seconds(8_000) < 20 * min([await seconds(1_000) for _ in range(3)]) + 0.05


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
