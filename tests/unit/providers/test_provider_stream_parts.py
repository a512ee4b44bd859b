import time
from collections.abc import AsyncIterator
from itertools import groupby
from operator import itemgetter

import httpx2
import pytest

from app.providers.answers import read_call
from app.providers.base import ApiFailure, InvalidToolCall
from app.providers.openai_chat import ThinkTags
from app.providers.sdk_adapter import WholeEvents
from app.util.bounds import parse_json


async def read_of(stream: bytes, size: int) -> bytes:
    class Sent(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for at in range(0, len(stream), size):
                yield stream[at : at + size]

    return b"".join([piece async for piece in WholeEvents(Sent(), 200, {}, "http://model.example/v1")])


EVENTS = {
    "events, notes and ends of lines": (
        ': note\r\n\r\nid: 1\r\nevent: a\r\ndata: {"t":"wörld 🌍"}\r\n\r\n: ping\n\n\n\ndata: 1\ndata: 2\n\ndata: [DONE]\n\n',
        'id: 1\nevent: a\ndata: {"t":"wörld 🌍"}\n\ndata: 1\ndata: 2\n\n',
    ),
    "behind the last event": ("data: 1\n\ndata: [DONE]\n\ndata: 2\n\n" + "x" * 100, "data: 1\n\n"),
    "without data": ('id: 3\ndata:\n\nevent: ping\n\nretry: 1\n\ndata: {"a": 1}', 'data: {"a": 1}\n\n'),
    "cut off": ('data: {"a": 1}\n\ndata: {"b": ', 'data: {"a": 1}\n\n'),
    "nothing": (": still here\n\n", ""),
    "halves of characters": (
        r'data: {"t":"\ud83d\ude00 \ud83d \\ud83d"}' + "\n\n",
        r'data: {"t":"\ud83d\ude00 \ufffd \\ud83d"}' + "\n\n",
    ),
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("sent", "read"), EVENTS.values(), ids=EVENTS)
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
    for invalid in ("{nope", '{"a":' * 50_000, b"\xff"):
        with pytest.raises(ValueError):
            parse_json(invalid)
    assert isinstance(read_call("call", "read", "[" * 50_000), InvalidToolCall)


THOUGHTS = {
    "plain a < b": [("text", "plain a < b")],
    "<think>\nplan\n</think>\n\nanswer": [("reasoning", "plan\n"), ("text", "answer")],
    "<think></think>answer": [("text", "answer")],
    "a <think>b</think> c <think>d": [("text", "a "), ("reasoning", "b"), ("text", "c "), ("reasoning", "d")],
    "ends with <thi": [("text", "ends with <thi")],
    "<think>never closed </thi": [("reasoning", "never closed </thi")],
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("text", THOUGHTS)
def test_think_tags(text: str, size: int) -> None:
    think = ThinkTags()
    pieces = [piece for at in range(0, len(text), size) for piece in think.feed(text[at : at + size])] + think.flush()
    joined = [(kind, "".join(piece for _, piece in group)) for kind, group in groupby(pieces, itemgetter(0))]
    assert joined == THOUGHTS[text]


def test_text_that_cannot_begin_a_tag_is_not_held_back() -> None:
    think = ThinkTags()
    assert (think.feed("a <"), think.feed("b")) == ([("text", "a ")], [("text", "<b")])
