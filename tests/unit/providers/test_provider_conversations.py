"""A conversation of each API as the network carries it (`conversations/`), played to the SDKs by a server."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, Reply, ask, events_of
from fake_provider import adapter as make

from app.providers.anthropic_messages import Anthropic
from app.providers.base import (
    ApiFailure,
    ContextOverflow,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    StreamEvent,
    StreamStart,
    TextDelta,
    ToolCall,
    ToolInputStart,
    Usage,
)
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses

CONVERSATIONS = Path(__file__).parent / "conversations"
ADAPTERS: dict[str, Any] = {"chat": OpenAIChat, "responses": OpenAIResponses, "messages": Anthropic}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SEALS: dict[str, Any] = {
    "chat": None,
    "responses": {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAAB-end"}},
    "messages": {"anthropic": {"signature": "EqQBCg"}},
}
OVERLOADED = {
    "chat": "The server had an error while processing your request.",
    "responses": "The server had an error while processing your request.",
    "messages": "Overloaded",
}
SECONDS_OF_AN_ABORT = 0.1


def plays(server: FakeServer, name: str, end: Any = "clean") -> None:
    stream = (CONVERSATIONS / name).read_bytes()
    server.reply = Reply([stream[at : at + 37] for at in range(0, len(stream), 37)], end=end)


def provider(server: FakeServer, wire: str) -> Any:
    return make(server, ADAPTERS[wire])


def said(events: list[StreamEvent], kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_reasoning_text_and_calls_side_by_side(server: FakeServer, wire: str) -> None:
    plays(server, f"{wire}_answer.sse")
    events = await events_of(provider(server, wire))
    assert events[0] == StreamStart()
    assert said(events, ReasoningDelta) == "Two files; read both."
    assert said(events, TextDelta) == "I read both — größer 🌍."
    assert [event.metadata for event in events if isinstance(event, ReasoningEnd)] == [SEALS[wire]]
    assert [event.call_id for event in events if isinstance(event, ToolInputStart)] == ["call_a", "call_b"]
    calls = [(event.call_id, event.tool, event.input) for event in events if isinstance(event, ToolCall)]
    assert calls == [("call_a", "read", {"filePath": "/a.txt"}), ("call_b", "read", {"filePath": "/b.txt"})]
    reasoning = 0 if wire == "messages" else 20
    assert events[-1] == Finish("tool-calls", Usage(input=176, output=85, reasoning=reasoning, cache_read=1024))
    (asked,) = server.received
    assert (asked.path, asked.body["stream"]) == (PATHS[wire], True)


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_a_refusal(server: FakeServer, wire: str) -> None:
    plays(server, f"{wire}_refusal.sse")
    events = await events_of(provider(server, wire))
    assert said(events, TextDelta) == "I can't"
    assert events[-1] == Finish("content-filter", Usage(input=10, output=3))


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_an_error_in_the_middle(server: FakeServer, wire: str) -> None:
    plays(server, f"{wire}_error.sse")
    seen: list[StreamEvent] = []
    with pytest.raises(ApiFailure) as failed:
        async for event in provider(server, wire).stream(ask()):
            seen.append(event)
    assert said(seen, TextDelta) == "Half"
    assert (failed.value.message, failed.value.retryable) == (OVERLOADED[wire], True)
    assert len(server.received) == 1


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_a_conversation_that_is_too_long(server: FakeServer, wire: str) -> None:
    body = (CONVERSATIONS / f"{wire}_overflow.json").read_text()
    server.reply = Reply([body.encode()], 400, {"content-type": "application/json", "x-request-id": "req_1"})
    with pytest.raises(ContextOverflow) as failed:
        await events_of(provider(server, wire))
    assert (failed.value.status, failed.value.body, failed.value.retryable) == (400, body, False)
    assert failed.value.headers is not None and failed.value.headers["x-request-id"] == "req_1"


@pytest.mark.parametrize("wire", ADAPTERS)
async def test_an_abort_closes_the_connection_at_once(server: FakeServer, wire: str) -> None:
    answer = (CONVERSATIONS / f"{wire}_answer.sse").read_bytes()
    server.reply = Reply([answer[: answer.index(b"read both.")]], end="hang")
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in provider(server, wire).stream(ask()):
            reading.set()

    task = asyncio.create_task(read())
    await asyncio.wait_for(reading.wait(), 10)
    began = time.monotonic()
    task.cancel()
    await asyncio.wait_for(server.hung_up.wait(), 10)
    took = time.monotonic() - began
    with pytest.raises(asyncio.CancelledError):
        await task
    assert took < SECONDS_OF_AN_ABORT
