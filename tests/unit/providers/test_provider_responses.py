from typing import Any

import pytest
from fake_provider import FakeServer, ask, events_of, model, reasoning_model
from fake_provider import adapter as make

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
    Usage,
    UserTurn,
)
from app.providers.openai_responses import OpenAIResponses, responses_body

PNG = FileBlock("image/png", "data:image/png;base64,aGk=")
PDF = FileBlock("application/pdf", "data:application/pdf;base64,aGk=", "a.pdf")


async def played(server: FakeServer, *events: dict[str, Any]) -> list[StreamEvent]:
    server.plays(*events)
    provider = make(server, OpenAIResponses)
    start, *rest = await events_of(provider)
    assert start == StreamStart()
    return rest


def done(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **fields}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": 0, "item": fields}


def facts(item_id: str, encrypted: str | None = None) -> dict[str, Any]:
    return {"openai": {"itemId": item_id, **({"reasoningEncryptedContent": encrypted} if encrypted else {})}}


async def test_reasoning_text_and_usage(server: FakeServer) -> None:
    summary = "response.reasoning_summary"
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    events = await played(
        server,
        {"type": "response.created", "response": {}},
        item("added", type="reasoning", id="rs_1", summary=[]),
        {"type": f"{summary}_part.added", "item_id": "rs_1", "summary_index": 0},
        {"type": f"{summary}_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": "first"},
        {"type": f"{summary}_part.added", "item_id": "rs_1", "summary_index": 1},
        {"type": f"{summary}_text.delta", "item_id": "rs_1", "summary_index": 1, "delta": "second"},
        item("done", type="reasoning", id="rs_1", encrypted_content="secret"),
        item("added", type="message", id="msg_1"),
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "hi"},
        item("done", type="message", id="msg_1"),
        done(usage=usage),
    )
    assert events == [
        ReasoningStart("rs_1:0", facts("rs_1")),
        ReasoningDelta("rs_1:0", "first"),
        ReasoningEnd("rs_1:0", facts("rs_1")),
        ReasoningStart("rs_1:1", facts("rs_1")),
        ReasoningDelta("rs_1:1", "second"),
        ReasoningEnd("rs_1:1", facts("rs_1", "secret")),
        TextStart("msg_1"),
        TextDelta("msg_1", "hi"),
        TextEnd("msg_1", facts("msg_1")),
        Finish("stop", Usage(input=60, output=20, reasoning=5, cache_read=40)),
    ]


async def test_reasoning_without_a_summary_keeps_its_seal(server: FakeServer) -> None:
    events = await played(
        server,
        item("added", type="reasoning", id="rs_1"),
        item("done", type="reasoning", id="rs_1", encrypted_content="secret"),
        done(),
    )
    assert events[:2] == [ReasoningStart("rs_1:0", facts("rs_1")), ReasoningEnd("rs_1:0", facts("rs_1", "secret"))]


async def test_a_call_that_comes_whole_is_a_call(server: FakeServer) -> None:
    done_at_once = item("done", type="function_call", name="read", id="fc_1", call_id="a", arguments="{}")
    assert (await played(server, done_at_once, done()))[-1] == Finish("tool-calls", Usage())


async def test_calls(server: FakeServer) -> None:
    call = {"type": "function_call", "name": "read"}
    events = await played(
        server,
        item("added", **call, id="fc_1", call_id="a", arguments=""),
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"x":1}'},
        item("done", **call, id="fc_1", call_id="a", arguments='{"x":1}'),
        item("added", **call, id="fc_2", call_id="b", arguments=""),
        item("done", **call, id="fc_2", call_id="b", arguments="{oops"),
        done(),
    )
    assert events[:3] == [
        ToolInputStart("a", "read"),
        ToolCall("a", "read", {"x": 1}, facts("fc_1")),
        ToolInputStart("b", "read"),
    ]
    assert isinstance(events[3], InvalidToolCall)
    assert events[4:] == [Finish("tool-calls", Usage())]


@pytest.mark.parametrize(
    ("cause", "finish"), [("max_output_tokens", "length"), ("content_filter", "content-filter"), ("something", "unknown")]
)
async def test_incomplete(server: FakeServer, cause: str, finish: Any) -> None:
    assert await played(server, done("incomplete", incomplete_details={"reason": cause})) == [Finish(finish, Usage())]


async def test_cut_short(server: FakeServer) -> None:
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "half"}
    assert await played(server, delta) == [TextStart("msg_1"), TextDelta("msg_1", "half"), TextEnd("msg_1")]


# What is sent.


async def test_the_whole_request(server: FakeServer) -> None:
    request = ModelRequest(
        model=reasoning_model("gpt-5"),
        system=("be kind",),
        messages=(
            UserTurn((TextBlock("look"), PNG, PDF)),
            AssistantTurn(
                (
                    ReasoningBlock("one", facts("rs_1")),
                    ReasoningBlock("two", facts("rs_1", "secret")),
                    ReasoningBlock("of another model"),
                    TextBlock("I will", facts("msg_1")),
                    ToolCallBlock("c1", "read", {"p": 1}, facts("fc_1")),
                )
            ),
            ToolTurn((ToolResultBlock("c1", "read", "done"), ToolResultBlock("c2", "read", "see", files=(PNG,)))),
        ),
        session_id="ses_1",
        tools=(ToolSpec("read", "Reads.", {"type": "object"}),),
        max_output_tokens=100,
        options={"reasoningEffort": "low", "reasoningSummary": "auto", "textVerbosity": "low", "promptCacheKey": "ses_1"},
    )
    server.plays(done())
    await events_of(make(server, OpenAIResponses), request)
    image = {"type": "input_image", "image_url": PNG.url}
    assert server.received[0].path == "/v1/responses"
    assert server.body == {
        "model": "gpt-5",
        "input": [
            {"role": "developer", "content": "be kind"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    image,
                    {"type": "input_file", "filename": "a.pdf", "file_data": PDF.url},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
                "encrypted_content": "secret",
            },
            {"role": "assistant", "content": [{"type": "output_text", "text": "I will"}]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "see"}, image]},
        ],
        "stream": True,
        "store": False,
        "max_output_tokens": 100,
        "tools": [
            {"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": False}
        ],
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "prompt_cache_key": "ses_1",
    }


def test_what_is_stored_there_is_named_by_its_id() -> None:
    turn = AssistantTurn((ReasoningBlock("a", facts("rs_1")), ReasoningBlock("b", facts("rs_1")), TextBlock("t", facts("msg_1"))))
    body = responses_body(ask(model=reasoning_model("gpt-5"), messages=(turn,), options={"store": True}))
    assert body["store"] is True
    assert "include" not in body
    assert body["input"] == [
        {"type": "item_reference", "id": "rs_1"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "t"}], "id": "msg_1"},
    ]


def test_reasoning_that_is_neither_stored_nor_sealed_is_left_out() -> None:
    turn = AssistantTurn((ReasoningBlock("a", facts("rs_1")), TextBlock("t")))
    body = responses_body(ask(model=reasoning_model("gpt-5"), messages=(turn,)))
    assert body["input"] == [{"role": "assistant", "content": [{"type": "output_text", "text": "t"}]}]


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning() -> None:
    body = responses_body(ask(model=model("gpt-4o"), system=("s",)))
    assert "include" not in body
    assert body["input"][0]["role"] == "system"
