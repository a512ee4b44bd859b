"""A provider that sends too much is read no further, whatever it sends too much of and in whichever format."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from fake_provider import WIRES, FakeServer, Reply, answer, ask, called, events_of, failure_of, finish, said, sse, user
from fake_provider import adapter as make
from wire_floods import FORMATS, GATHERED, UNENDED, chat

from app.providers import answers, base, registry, transform
from app.util import bounds
from app.util.bounds import MAX_ERROR_BYTES, AnswerPassedLimit, body_of, whole_events

FLOOD = 4_000_000
HONEST = "h" * 1_000_000


def provider(server: FakeServer, wire: str = "chat", most_bytes: int = 1_500_000) -> base.Provider:
    return make(server, wire, most_bytes=most_bytes)


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 500_000)
    monkeypatch.setattr(answers, "MAX_GATHERED_BYTES", 500_000)
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 500_000)


@pytest.mark.parametrize(("wire", "kind"), GATHERED)
async def test_what_is_gathered_of_an_answer_has_a_bound(server: FakeServer, low_limits: None, wire: str, kind: str) -> None:
    server.reply = Reply([*FORMATS[wire][1](kind, FLOOD)])
    with pytest.raises(base.AnswerTooLarge) as failed:
        await events_of(provider(server, wire))
    assert not failed.value.retryable and "more than" in failed.value.message


@pytest.mark.parametrize("kind", UNENDED)
@pytest.mark.parametrize("wire", WIRES)
async def test_what_comes_of_one_event_has_a_bound(server: FakeServer, low_limits: None, wire: str, kind: str) -> None:
    server.reply = Reply([*UNENDED[kind](FLOOD)])
    with pytest.raises(base.AnswerTooLarge):
        await events_of(provider(server, wire))


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd, gzip", "deflate"])
async def test_a_compressed_answer_is_not_unpacked(server: FakeServer, encoding: str) -> None:
    server.reply = Reply([gzip.compress(sse("[DONE]"))], headers={"content-encoding": encoding})
    with pytest.raises(base.AnswerTooLarge, match="compressed"):
        await events_of(provider(server))
    assert server.received[-1].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [400, 500])
async def test_of_an_error_s_body_a_part_is_kept(server: FakeServer, status: int) -> None:
    server.reply = Reply([b"e" * 100_000] * 40, status)
    failed = await failure_of(provider(server))
    assert failed.status == status and failed.body == "e" * MAX_ERROR_BYTES and len(failed.message) < 3000


async def test_an_error_s_compressed_body_is_not_unpacked(server: FakeServer) -> None:
    server.reply = Reply([gzip.compress(b" " * 10_000_000)], 500, {"content-encoding": "gzip"})
    failed = await failure_of(provider(server))
    assert failed.body == "" and failed.retryable


LONG_ERRORS = [{"error": {"message": "m" * 3_000_000}}, {"type": "error", "x": "m" * 3_000_000}, "m" * 3_000_000]


@pytest.mark.parametrize("event", LONG_ERRORS, ids=["chat", "messages", "no JSON"])
async def test_an_error_in_the_stream_is_kept_in_part(server: FakeServer, event: Any) -> None:
    server.plays(event)
    failed = await failure_of(provider(server, "messages" if "type" in event else "chat"))
    assert failed.body is not None and len(failed.body) <= MAX_ERROR_BYTES and len(failed.message) < 3000


def calls(tool: str, arguments: str) -> bytes:
    return chat({"tool_calls": [{"index": 0, "id": "c", "function": {"name": tool, "arguments": arguments}}]})


async def test_arguments_of_very_many_values_are_not_read(server: FakeServer) -> None:
    server.reply = Reply([calls("list", '{"a": [' + "[]," * 200_000 + "[]]}"), chat({}, "tool_calls")])
    (invalid,) = [event for event in await events_of(provider(server)) if isinstance(event, base.InvalidToolCall)]
    assert "values" in invalid.error


async def test_an_honest_answer_of_a_megabyte(server: FakeServer) -> None:
    deltas = b"".join(chat({"content": HONEST[at : at + 40]}) for at in range(0, len(HONEST), 40))
    call = calls("write", '{"content": "' + HONEST[:400_000] + '"}')
    server.reply = Reply([deltas, call, chat({}, "tool_calls"), sse("[DONE]")])
    events = await events_of(provider(server))
    assert said(events) == HONEST and [event.tool for event in events if isinstance(event, base.ToolCall)] == ["write"]
    assert events[-1] == finish("tool-calls")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_stream_may_have_any_size_and_comes_in_whole_events(
    monkeypatch: pytest.MonkeyPatch, end: bytes, size: int
) -> None:
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 100)
    stream = (b"data: " + b"x" * 80 + end) * 50

    async def sent(text: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    pieces = [piece async for piece in whole_events(sent(stream + b"data: rest"))]
    assert b"".join(pieces) == stream + b"data: rest" and all(piece.endswith(end) for piece in pieces[:-1])
    with pytest.raises(AnswerPassedLimit):
        [piece async for piece in whole_events(sent(stream + b"data: " + b"x" * 101))]


async def test_a_body_has_a_size() -> None:
    async def sent(*chunks: bytes) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    assert await body_of(sent(b"x" * 5, b"x" * 5), 10) == b"x" * 10
    with pytest.raises(AnswerPassedLimit, match="10 bytes"):
        await body_of(sent(b"x" * 10, b"x"), 10)


class Endless(base.Provider):
    is_closed = False

    async def stream(self, request: base.ModelRequest) -> AsyncGenerator[base.StreamEvent, None]:
        try:
            while True:
                yield base.BlockDelta("text", "text-1", "é" * 1000)
        finally:
            self.is_closed = True

    async def close(self) -> None:
        pass


async def test_the_connection_is_closed_when_a_limit_is_passed(server: FakeServer) -> None:
    server.reply = Reply([chat({"content": "é" * 1000})] * 10, end="hang")
    with pytest.raises(base.AnswerTooLarge, match="10000 bytes"):
        await events_of(provider(server, most_bytes=10_000))
    await asyncio.wait_for(server.hung_up.wait(), 10)


@pytest.mark.parametrize(
    ("limit", "begins"), [("MAX_BLOCKS", base.BlockStart("text", "t")), ("MAX_CALLS", base.ToolInputStart("c", "list"))]
)
def test_an_answer_has_so_many_blocks_and_calls(monkeypatch: pytest.MonkeyPatch, limit: str, begins: base.StreamEvent) -> None:
    monkeypatch.setattr(answers, limit, 3)
    size = answers.AnswerSize(1000)
    for _ in range(3):
        size.add(begins)
    with pytest.raises(base.AnswerTooLarge, match="more than 3"):
        size.add(begins)


class Unlimited:
    counted = 0

    async def require(self, name: str) -> None: ...

    async def add(self, name: str, cost: float, tokens: int) -> None:
        self.counted += tokens


async def test_a_call_that_counts_against_a_budget_ends_with_who_reads_it() -> None:
    endless, budgets = Endless(), Unlimited()
    stream = registry.metered(endless.stream, "anna", budgets, ask())
    for _ in range(3):
        await anext(stream)
    await stream.aclose()
    assert endless.is_closed and budgets.counted > 0


@pytest.mark.parametrize(("usage", "least"), [(base.Usage(input=7, output=3), 10), (base.Usage(), 20_000)])
async def test_what_a_provider_does_not_count_is_estimated(usage: base.Usage, least: int) -> None:
    async def send(request: base.ModelRequest) -> AsyncGenerator[base.StreamEvent, None]:
        yield base.StreamStart()
        yield base.BlockDelta("text", "text-1", "x" * 40_000)
        yield base.ToolCall("call-1", "write", {"content": "x" * 40_000})
        yield base.Finish("tool-calls", usage)

    budgets = Unlimited()
    async for _ in registry.metered(send, "anna", budgets, ask()):
        pass
    assert least <= budgets.counted < least + 1000


LONG = "x" * 60_000
CALL = answer(base.ToolCallBlock("c", "write", {"content": LONG}))
TOO_MUCH: dict[str, list[base.ModelMessage]] = {
    "texts": [user(LONG, LONG)],
    "reasoning and arguments": [answer(base.ReasoningBlock(LONG), *CALL.content)],
    "arguments and results": [CALL, called(text=LONG)[1]],
}


@pytest.mark.parametrize("turns", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_conversation_that_no_model_takes_is_not_sent(monkeypatch: pytest.MonkeyPatch, turns: list[base.ModelMessage]) -> None:
    monkeypatch.setattr(transform, "MAX_CONVERSATION_BYTES", 100_000)
    with pytest.raises(base.ContextOverflow, match="100000 bytes"):
        transform.prepare(ask(messages=tuple(turns)))
    image = base.FileBlock("image/png", "data:image/png;base64," + "A" * 1_000_000)
    seen = (*turns[1:], user("Look", image), base.ToolTurn((base.ToolResultBlock("c", "read", "An image.", files=(image,)),)))
    assert transform.prepare(ask(messages=seen)), "files may be large"
    monkeypatch.setattr(transform, "MAX_BYTES_OF_FILES", 2_000_000)
    with pytest.raises(base.ContextOverflow, match="files"):
        transform.prepare(ask(messages=seen))
