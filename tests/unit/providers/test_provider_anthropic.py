from typing import Any

import pytest
from fake_provider import FakeServer, ask, events_of, limit, model

from app.providers.anthropic_messages import Anthropic, anthropic_body
from app.providers.base import (
    AssistantTurn,
    FileBlock,
    Finish,
    InvalidToolCall,
    ModelRequest,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StreamEvent,
    StreamStart,
    TextBlock,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolCallBlock,
    ToolInputStart,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UnusableOption,
    Usage,
    UserTurn,
)

PNG = FileBlock("image/png", "data:image/png;base64,aGk=")
PDF = FileBlock("application/pdf", "https://host/a.pdf", "a.pdf")
MARK = {"cache_control": {"type": "ephemeral"}}
SONNET = model("claude-sonnet-4-5", npm="@ai-sdk/anthropic", limit=limit(64_000))


def adapter(server: FakeServer, base_url: str | None = None, **headers: str) -> Anthropic:
    return Anthropic("anthropic", api_key="key", base_url=base_url or server.url, headers=headers, options={})


async def played(server: FakeServer, *events: dict[str, Any]) -> list[StreamEvent]:
    server.plays(*events)
    start, *rest = await events_of(adapter(server))
    assert start == StreamStart()
    return rest


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stop(reason: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}]


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


async def test_signed_thinking_text_and_usage(server: FakeServer) -> None:
    counts = {"input_tokens": 10, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 30, "output_tokens": 1}
    events = await played(
        server,
        start(**counts),
        {"type": "ping"},
        begin(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="si"),
        delta(0, "signature_delta", signature="gn"),
        end(0),
        begin(1, type="redacted_thinking", data="sealed"),
        end(1),
        begin(2, type="text", text=""),
        delta(2, "text_delta", text="so"),
        end(2),
        *stop(output_tokens=20),
    )
    sealed = {"anthropic": {"redactedData": "sealed"}}
    assert events == [
        ReasoningStart("0"),
        ReasoningDelta("0", "hm"),
        ReasoningEnd("0", {"anthropic": {"signature": "sign"}}),
        ReasoningStart("1", sealed),
        ReasoningEnd("1", sealed),
        TextStart("2"),
        TextDelta("2", "so"),
        TextEnd("2"),
        Finish("stop", Usage(input=10, output=20, cache_read=400, cache_write=30)),
    ]


async def test_calls(server: FakeServer) -> None:
    events = await played(
        server,
        begin(0, type="tool_use", id="a", name="read", input={}),
        delta(0, "input_json_delta", partial_json=""),
        delta(0, "input_json_delta", partial_json='{"x":'),
        delta(0, "input_json_delta", partial_json="1}"),
        end(0),
        begin(1, type="tool_use", id="b", name="list", input={}),
        end(1),
        begin(2, type="tool_use", id="c", name="whole", input={"y": 10**30}),
        end(2),
        begin(3, type="tool_use", id="d", name="cut", input={}),
        delta(3, "input_json_delta", partial_json='{"x":'),
        end(3),
        *stop("tool_use"),
    )
    assert events[:7] == [
        ToolInputStart("a", "read"),
        ToolCall("a", "read", {"x": 1}),
        ToolInputStart("b", "list"),
        ToolCall("b", "list", {}),
        ToolInputStart("c", "whole"),
        ToolCall("c", "whole", {"y": 1e30}),
        ToolInputStart("d", "cut"),
    ]
    assert isinstance(events[7], InvalidToolCall)
    assert events[8:] == [Finish("tool-calls", Usage())]


async def test_input_counted_only_at_the_end(server: FakeServer) -> None:
    events = await played(server, start(input_tokens=0), *stop(input_tokens=7, output_tokens=2))
    assert events == [Finish("stop", Usage(input=7, output=2))]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content-filter"),
        ("new", "unknown"),
    ],
)
async def test_stop_reasons(server: FakeServer, reason: str, finish: Any) -> None:
    assert await played(server, *stop(reason)) == [Finish(finish, Usage())]


async def test_cut_short(server: FakeServer) -> None:
    text = [begin(0, type="text", text=""), delta(0, "text_delta", text="half")]
    assert await played(server, *text) == [TextStart("0"), TextDelta("0", "half"), TextEnd("0")]


# Where and how it is sent.


@pytest.mark.parametrize(("base", "path"), [("/v1", ""), ("/v1/", ""), ("", ""), ("/", ""), ("/anthropic/v1", "/anthropic")])
async def test_a_base_url_with_or_without_its_version(server: FakeServer, base: str, path: str) -> None:
    server.plays(*stop())
    await events_of(adapter(server, f"http://127.0.0.1:{server.port}{base}"))
    assert server.received[0].path == f"{path}/v1/messages"


async def test_the_key_is_sent_as_documented(server: FakeServer) -> None:
    server.plays(*stop())
    await events_of(adapter(server, **{"anthropic-beta": "x"}))
    headers = server.received[0].headers
    assert (headers["x-api-key"], headers["anthropic-version"], headers["anthropic-beta"]) == ("key", "2023-06-01", "x")
    assert "authorization" not in headers


async def test_the_whole_request(server: FakeServer) -> None:
    request = ModelRequest(
        model=SONNET,
        system=("a", " ", "b", "c"),
        messages=(
            UserTurn((TextBlock("first"),)),
            UserTurn((TextBlock(""), TextBlock("look"), PNG, PDF)),
            AssistantTurn(
                (
                    ReasoningBlock("hm", {"anthropic": {"signature": "sign"}}),
                    ReasoningBlock("", {"anthropic": {"redactedData": "sealed"}}),
                    ReasoningBlock("unsigned"),
                    TextBlock(" "),
                    ToolCallBlock("call_1", "read", {"p": 1}),
                )
            ),
            ToolTurn(
                (ToolResultBlock("call_1", "read", "see", files=(PNG,)), ToolResultBlock("c2", "read", "no", is_error=True))
            ),
            UserTurn((TextBlock("go on"),)),
        ),
        session_id="ses_1",
        tools=(ToolSpec("read", "Reads.", {"type": "object"}),),
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        max_output_tokens=100,
        options={"metadata": {"user_id": "u"}, "reasoningEffort": "high"},
    )
    server.plays(*stop())
    await events_of(adapter(server), request)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert server.body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "stream": True,
        "system": [{"type": "text", "text": "a", **MARK}, {"type": "text", "text": "b", **MARK}, {"type": "text", "text": "c"}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "first"},
                    {"type": "text", "text": "look"},
                    image,
                    {"type": "document", "source": {"type": "url", "url": "https://host/a.pdf"}, "title": "a.pdf"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sign"},
                    {"type": "redacted_thinking", "data": "sealed"},
                    {"type": "tool_use", "id": "call_1", "name": "read", "input": {"p": 1}, **MARK},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "see"}, image]},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
                    {"type": "text", "text": "go on", **MARK},
                ],
            },
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": "u"},
    }


def test_nothing_empty_is_sent_but_redacted_reasoning() -> None:
    redacted = ReasoningBlock("", {"anthropic": {"redactedData": "x"}})
    turns = (
        UserTurn((TextBlock(""), TextBlock("hi"))),
        AssistantTurn((TextBlock(""), ReasoningBlock(""))),
        AssistantTurn((redacted,)),
        UserTurn((TextBlock(""),)),
        UserTurn((TextBlock("go on"),)),
    )
    messages = anthropic_body(ask(model=SONNET, messages=turns))["messages"]
    blocks = [[(block["type"], block.get("text")) for block in message["content"]] for message in messages]
    assert blocks == [[("text", "hi")], [("redacted_thinking", None)], [("text", "go on")]]


@pytest.mark.parametrize(
    ("thinking", "named"),
    [
        ("on", "thinking"),
        (True, "thinking"),
        ([], "thinking"),
        ({"type": "enabled", "budgetTokens": None}, "thinking.budgetTokens"),
        ({"type": "enabled", "budgetTokens": "many"}, "thinking.budgetTokens"),
        ({"type": "enabled", "budget_tokens": True}, "thinking.budget_tokens"),
    ],
)
def test_an_option_that_cannot_be_sent_is_named(thinking: Any, named: str) -> None:
    with pytest.raises(UnusableOption, match=f"`{named}`.*configuration"):
        anthropic_body(ask(model=SONNET, options={"thinking": thinking}))


def test_thinking_has_its_budget_beside_the_answer_and_no_temperature() -> None:
    thinking = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
    body = anthropic_body(ask(model=SONNET, temperature=1.0, max_output_tokens=32_000, options=thinking))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16_000}
    assert body["max_tokens"] == 48_000
    assert "temperature" not in body
    assert anthropic_body(ask(model=SONNET, max_output_tokens=60_000, options=thinking))["max_tokens"] == 64_000


@pytest.mark.parametrize(
    ("output", "budget", "max_tokens"),
    [(64_000, 16_000, 48_000), (40_000, 16_000, 40_000), (16_001, 16_000, 16_001), (16_000, 8_000, 16_000), (0, 16_000, 32_000)],
)
def test_thinking_and_the_answer_fit_the_limit_together(output: int, budget: int, max_tokens: int) -> None:
    thinking = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
    claude = model("claude", limit=limit(output))
    body = anthropic_body(ask(model=claude, max_output_tokens=min(output or 32_000, 32_000), options=thinking))
    assert (body["thinking"]["budget_tokens"], body["max_tokens"]) == (budget, max_tokens)


@pytest.mark.parametrize(("output", "max_tokens"), [(0, 32_000), (8_000, 8_000), (64_000, 32_000)])
def test_the_limit_when_none_is_asked(output: int, max_tokens: int) -> None:
    assert anthropic_body(ask(model=model("claude", limit=limit(output))))["max_tokens"] == max_tokens


def test_thinking_cannot_carry_a_cache_mark() -> None:
    turn = AssistantTurn((TextBlock("so"), ReasoningBlock("hm", {"anthropic": {"signature": "s"}})))
    body = anthropic_body(ask(messages=(UserTurn((TextBlock("a"),)), turn)))
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "so", **MARK},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
    ]


def test_a_conversation_never_ends_with_the_model_s_own_words() -> None:
    body = anthropic_body(ask(messages=(UserTurn((TextBlock("a"),)), AssistantTurn((TextBlock("so"),)))))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
