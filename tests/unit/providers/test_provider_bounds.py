"""A provider that sends too much is read no further, whatever it sends too much of and in whichever format."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from fake_provider import FakeServer, Reply, ask, events_of, sse
from fake_provider import adapter as make
from wire_floods import FORMATS, GATHERED, UNENDED, chat

from app.providers import answers, registry, transform
from app.providers.answers import AnswerSize
from app.providers.anthropic_messages import Anthropic
from app.providers.base import (
    AnswerTooLarge,
    ApiFailure,
    AssistantTurn,
    ContextOverflow,
    FileBlock,
    Finish,
    ModelMessage,
    ModelRequest,
    Provider,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    TextDelta,
    TextStart,
    ToolCall,
    ToolCallBlock,
    ToolInputStart,
    ToolResultBlock,
    ToolTurn,
    Usage,
    UserTurn,
)
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses
from app.users.accounts import Budgets
from app.util import bounds
from app.util.bounds import MAX_ERROR_BYTES, AnswerPassedLimit, BodyBytes, EventBytes

ADAPTERS = {"chat": OpenAIChat, "responses": OpenAIResponses, "messages": Anthropic}
FLOOD = 4_000_000
HONEST = "h" * 1_000_000


def provider(server: FakeServer, wire: str = "chat", most_bytes: int = 1_500_000) -> Provider:
    made: Provider = make(server, ADAPTERS[wire], most_bytes=most_bytes)
    return made


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 500_000)
    monkeypatch.setattr(answers, "MAX_GATHERED_BYTES", 500_000)
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 500_000)


@pytest.mark.parametrize(("wire", "kind"), GATHERED)
async def test_what_is_gathered_of_an_answer_has_a_bound(server: FakeServer, low_limits: None, wire: str, kind: str) -> None:
    server.reply = Reply([*FORMATS[wire][1](kind, FLOOD)])
    with pytest.raises(AnswerTooLarge) as failed:
        await events_of(provider(server, wire))
    assert not failed.value.retryable and "more than" in failed.value.message


@pytest.mark.parametrize("kind", UNENDED)
@pytest.mark.parametrize("wire", ADAPTERS)
async def test_what_comes_of_one_event_has_a_bound(server: FakeServer, low_limits: None, wire: str, kind: str) -> None:
    server.reply = Reply([*UNENDED[kind](FLOOD)])
    with pytest.raises(AnswerTooLarge):
        await events_of(provider(server, wire))


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd, gzip", "deflate"])
async def test_a_compressed_answer_is_not_unpacked(server: FakeServer, encoding: str) -> None:
    server.reply = Reply([gzip.compress(sse("[DONE]"))], headers={"content-encoding": encoding})
    with pytest.raises(AnswerTooLarge, match="compressed"):
        await events_of(provider(server))
    assert server.received[-1].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [400, 500])
async def test_of_an_error_s_body_a_part_is_kept(server: FakeServer, status: int) -> None:
    server.reply = Reply([b"e" * 100_000] * 40, status)
    with pytest.raises(ApiFailure) as failed:
        await events_of(provider(server))
    assert failed.value.status == status
    assert failed.value.body == "e" * MAX_ERROR_BYTES and len(failed.value.message) < 3000


async def test_an_error_s_compressed_body_is_not_unpacked(server: FakeServer) -> None:
    server.reply = Reply([gzip.compress(b" " * 10_000_000)], 500, {"content-encoding": "gzip"})
    with pytest.raises(ApiFailure) as failed:
        await events_of(provider(server))
    assert failed.value.body == "" and failed.value.retryable


@pytest.mark.parametrize(
    "event", [{"error": {"message": "m" * 3_000_000}}, {"type": "error", "x": "m" * 3_000_000}, "m" * 3_000_000]
)
async def test_an_error_in_the_stream_is_kept_in_part(server: FakeServer, event: Any) -> None:
    server.plays(event)
    with pytest.raises(ApiFailure) as failed:
        await events_of(provider(server, "messages" if "type" in event else "chat"))
    assert failed.value.body is not None
    assert len(failed.value.body) <= MAX_ERROR_BYTES and len(failed.value.message) < 3000


async def test_arguments_of_very_many_values_are_not_read(server: FakeServer) -> None:
    many = '{"a": [' + "[]," * 200_000 + "[]]}"
    call = {"index": 0, "id": "c", "function": {"name": "list", "arguments": many}}
    server.plays(chat_event({"tool_calls": [call]}), chat_event({}, "tool_calls"))
    (invalid,) = [event for event in await events_of(provider(server)) if type(event).__name__ == "InvalidToolCall"]
    assert "values" in invalid.error  # type: ignore[union-attr]


def chat_event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


async def test_an_honest_answer_of_a_megabyte(server: FakeServer) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "write", "arguments": '{"content": "' + HONEST[:400_000] + '"}'}}
    deltas = [chat({"content": HONEST[at : at + 4]}) for at in range(0, len(HONEST), 4)]
    server.reply = Reply([b"".join(deltas), chat({"tool_calls": [call]}), chat({}, "tool_calls"), sse("[DONE]")])
    events = await events_of(provider(server))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == HONEST
    assert [event.tool for event in events if isinstance(event, ToolCall)] == ["write"]
    assert events[-1] == Finish("tool-calls", Usage())


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_may_have_any_size(monkeypatch: pytest.MonkeyPatch, end: bytes, size: int) -> None:
    monkeypatch.setattr(bounds, "MAX_EVENT_BYTES", 100)
    count, stream = EventBytes(), (b"data: " + b"x" * 80 + end) * 50
    for at in range(0, len(stream), size):
        count.add(stream[at : at + size]) if size < 100 else count.add(stream)
    with pytest.raises(AnswerPassedLimit):
        count.add(b"data: " + b"x" * 101)


def test_a_body_has_a_size() -> None:
    count = BodyBytes(10)
    count.add(b"x" * 10)
    with pytest.raises(AnswerPassedLimit, match="10 bytes"):
        count.add(b"x")


class Endless(Provider):
    is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        try:
            while True:
                yield TextDelta("text-1", "é" * 1000)
        finally:
            self.is_closed = True

    async def close(self) -> None:
        pass


async def test_the_connection_is_closed_when_a_limit_is_passed(server: FakeServer) -> None:
    server.reply = Reply([chat({"content": "é" * 1000})] * 10, end="hang")
    with pytest.raises(AnswerTooLarge, match="10000 bytes"):
        await events_of(provider(server, most_bytes=10_000))
    await asyncio.wait_for(server.hung_up.wait(), 10)


@pytest.mark.parametrize(("most", "limit", "what"), [(3, "MAX_BLOCKS", "blocks"), (3, "MAX_CALLS", "tool calls")])
def test_an_answer_has_so_many_blocks_and_calls(monkeypatch: pytest.MonkeyPatch, most: int, limit: str, what: str) -> None:
    monkeypatch.setattr(answers, limit, most)
    size, begins = AnswerSize(1000), TextStart("t") if what == "blocks" else ToolInputStart("c", "list")
    for _ in range(most):
        size.add(begins)
    with pytest.raises(AnswerTooLarge, match=f"more than {most} {what}"):
        size.add(begins)


async def test_a_call_that_counts_against_a_budget_ends_with_who_reads_it() -> None:
    class Unlimited:
        async def require(self, name: str) -> None: ...

    endless = Endless()
    stream = registry.metered(endless.stream, "anna", cast(Budgets, Unlimited()), ask())
    await anext(stream)
    await stream.aclose()
    assert endless.is_closed


LONG = "x" * 60_000
CALL = ToolCallBlock("c", "write", {"content": LONG})


@pytest.mark.parametrize(
    "turns",
    [
        [UserTurn((TextBlock(LONG), TextBlock(LONG)))],
        [AssistantTurn((ReasoningBlock(LONG), CALL))],
        [AssistantTurn((CALL,)), ToolTurn((ToolResultBlock("c", "write", LONG),))],
    ],
    ids=["texts", "reasoning and arguments", "arguments and results"],
)
def test_a_conversation_that_no_model_takes_is_not_sent(monkeypatch: pytest.MonkeyPatch, turns: list[ModelMessage]) -> None:
    monkeypatch.setattr(transform, "MAX_CONVERSATION_BYTES", 100_000)
    with pytest.raises(ContextOverflow, match="100000 bytes"):
        transform.prepare(ask(messages=tuple(turns)))
    assert transform.prepare(ask(messages=(UserTurn((TextBlock(LONG),)),)))


def test_files_of_a_conversation_may_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform, "MAX_CONVERSATION_BYTES", 100_000)
    image = UserTurn((TextBlock("Look"), FileBlock("image/png", "data:image/png;base64," + "A" * 1_000_000)))
    assert transform.prepare(ask(messages=(image, image)))
