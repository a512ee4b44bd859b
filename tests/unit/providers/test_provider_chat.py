from typing import Any

import pytest
from fake_provider import FakeServer, ask, events_of, model
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
from app.providers.openai_chat import chat_body
from app.providers.openai_responses import responses_body
from app.schema.model import Capabilities, InterleavedField

PNG = FileBlock("image/png", "data:image/png;base64,aGk=", "a.png")
PDF = FileBlock("application/pdf", "data:application/pdf;base64,aGk=")


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(index: int | None, arguments: Any = None, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    call: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    return delta(tool_calls=[call])


async def played(server: FakeServer, *events: dict[str, Any] | str) -> list[StreamEvent]:
    server.plays(*events)
    provider = make(server)
    start, *rest = await events_of(provider)
    assert start == StreamStart()
    return rest


STOP = delta("stop")


USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 10},
}
NO_USAGE = Finish("stop", Usage())
REASONING = [ReasoningStart("reasoning-1"), ReasoningDelta("reasoning-1", "hm"), ReasoningEnd("reasoning-1")]
SO = [TextStart("text-2"), TextDelta("text-2", "so"), TextEnd("text-2")]
STREAMS: dict[str, tuple[list[Any], list[StreamEvent]]] = {
    "text, and usage after the finish reason": (
        [
            *(
                delta(role="assistant", content=""),
                delta(content="Hel"),
                delta(content="lo"),
                STOP,
                {"choices": [], "usage": USAGE},
            )
        ],
        [
            *(TextStart("text-1"), TextDelta("text-1", "Hel"), TextDelta("text-1", "lo"), TextEnd("text-1")),
            Finish("stop", Usage(input=600, output=50, reasoning=10, cache_read=400)),
        ],
    ),
    "nothing": ([STOP, "[DONE]"], [NO_USAGE]),
    "reasoning": ([delta(reasoning="hm"), delta(content="so"), STOP], [*REASONING, *SO, NO_USAGE]),
    "reasoning_content": ([delta(reasoning_content="hm"), delta(content="so"), STOP], [*REASONING, *SO, NO_USAGE]),
    "think tags": ([delta(content="<thi"), delta(content="nk>hm</think>\nso"), STOP], [*REASONING, *SO, NO_USAGE]),
    "no finish reason": (
        [delta(content="half"), tool(0, "{", "a", "read")],
        [TextStart("text-1"), TextDelta("text-1", "half"), TextEnd("text-1"), ToolInputStart("a", "read")],
    ),
    "a name that comes after the id": (
        [tool(0, None, "a"), tool(0, "{}", None, "read"), STOP],
        [ToolInputStart("a", "read"), ToolCall("a", "read", {}), Finish("tool-calls", Usage())],
    ),
    "parallel calls": (
        [
            *(delta(content="ok"), tool(0, "", "a", "read"), tool(1, "", "b", "grep")),
            *(tool(0, '{"x":'), tool(1, ""), tool(0, "1}"), delta("tool_calls")),
        ],
        [
            *(TextStart("text-1"), TextDelta("text-1", "ok"), TextEnd("text-1")),
            *(ToolInputStart("a", "read"), ToolInputStart("b", "grep")),
            *(ToolCall("a", "read", {"x": 1}), ToolCall("b", "grep", {}), Finish("tool-calls", Usage())),
        ],
    ),
}


@pytest.mark.parametrize(("sent", "events"), STREAMS.values(), ids=STREAMS)
async def test_what_is_read_of_a_stream(server: FakeServer, sent: list[Any], events: list[StreamEvent]) -> None:
    assert await played(server, *sent) == events


async def test_cache_counts_under_other_names(server: FakeServer) -> None:
    written = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30}}
    assert (await played(server, STOP, {"usage": written}))[-1] == Finish("stop", Usage(input=50, cache_read=20, cache_write=30))
    hit = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 40}
    assert (await played(server, STOP, {"usage": hit}))[-1] == Finish("stop", Usage(input=60, cache_read=40))


async def test_reasoning_details_and_content_lists(server: FakeServer) -> None:
    details = delta(reasoning_details=[{"type": "reasoning.text", "text": "a"}])
    parts = delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}, {"type": "text", "text": "c"}])
    events = await played(server, details, parts, STOP)
    assert [(type(event), event.text) for event in events if isinstance(event, ReasoningDelta | TextDelta)] == [
        (ReasoningDelta, "a"),
        (ReasoningDelta, "b"),
        (TextDelta, "c"),
    ]


async def test_arguments_that_are_no_object(server: FakeServer) -> None:
    events = await played(server, tool(0, "{oops", "a", "read"), tool(1, "[1]", "b", "read"), delta("length"))
    bad = [event for event in events if isinstance(event, InvalidToolCall)]
    assert [(call.call_id, call.raw) for call in bad] == [("a", "{oops"), ("b", "[1]")]
    assert events[-1] == Finish("length", Usage())


async def test_servers_without_indexes_ids_or_the_right_reason(server: FakeServer) -> None:
    events = await played(server, tool(0, "{}", "a", "read"), tool(0, {"x": 1}, "b", "read"), STOP)
    assert [event for event in events if isinstance(event, ToolCall)] == [
        ToolCall("a", "read", {}),
        ToolCall("b", "read", {"x": 1}),
    ]
    assert events[-1] == Finish("tool-calls", Usage())
    start, call, _ = await played(server, tool(None, "{}", None, "read"), STOP)
    assert isinstance(start, ToolInputStart)
    assert call == ToolCall(start.call_id, "read", {})
    assert start.call_id


TWO_CALLS = {
    "index 0, arguments apart": [
        *(tool(0, "", "a", "f"), tool(0, '{"x"'), tool(0, ":1}")),
        *(tool(0, "", "b", "g"), tool(0, '{"y"'), tool(0, ":2}")),
    ],
    "index 0, id and name each time": [
        *(tool(0, '{"x":', "a", "f"), tool(0, "1}", "a", "f")),
        *(tool(0, '{"y"', "b", "g"), tool(0, ":2}", "b", "g")),
    ],
    "index 0, an id each time, the name once": [
        *(tool(0, '{"x":', "a", "f"), tool(0, "1}", "a"), tool(0, '{"y"', "b", "g"), tool(0, ":2}", "b")),
    ],
    "index 0, pieces that take turns": [
        *(tool(0, "", "a", "f"), tool(0, "", "b", "g"), tool(0, '{"x":1}', "a"), tool(0, '{"y":2}', "b")),
    ],
    "no index": [tool(None, "", "a", "f"), tool(None, '{"x":1}'), tool(None, "", "b", "g"), tool(None, '{"y":2}')],
    "index 0, no id": [tool(0, "", None, "f"), tool(0, '{"x":1}'), tool(0, "", None, "g"), tool(0, '{"y":2}')],
    "no index, no id": [tool(None, {"x": 1}, None, "f"), tool(None, {"y": 2}, None, "g")],
    "an id that comes later": [
        *(tool(0, "", None, "f"), tool(0, '{"x":1}', "a", "f"), tool(1, "", None, "g"), tool(1, '{"y":2}', "b", "g")),
    ],
    "an id that comes at the end": [tool(0, '{"x":1}', None, "f"), tool(0, "", "a", "f"), tool(1, '{"y":2}', "b", "g")],
    "indexes and one id for all": [tool(0, '{"x":1}', "a", "f"), tool(1, '{"y":', "a", "g"), tool(1, "2}", "a", "g")],
    "indexes that take turns": [tool(3, "", "a", "f"), tool(1, '{"y":', "b", "g"), tool(3, '{"x":1}'), tool(1, "2}")],
    "an index at the start only": [tool(0, "", "a", "f"), tool(None, '{"x":1}'), tool(1, "", "b", "g"), tool(None, '{"y":2}')],
}


@pytest.mark.parametrize("pieces", TWO_CALLS.values(), ids=TWO_CALLS)
async def test_arguments_go_to_their_call_however_a_server_numbers_it(server: FakeServer, pieces: list[dict[str, Any]]) -> None:
    events = await played(server, *pieces, delta("tool_calls"))
    starts = [event for event in events if isinstance(event, ToolInputStart)]
    calls = [event for event in events if isinstance(event, ToolCall | InvalidToolCall)]
    assert [(call.tool, getattr(call, "input", None)) for call in calls] == [("f", {"x": 1}), ("g", {"y": 2})]
    assert [start.call_id for start in starts] == [call.call_id for call in calls]
    assert len({start.call_id for start in starts}) == 2


async def test_one_tool_called_twice_without_ids_is_two_calls(server: FakeServer) -> None:
    events = await played(server, tool(0, {"x": 1}, None, "f"), tool(0, {"x": 2}, None, "f"), STOP)
    assert [event.input for event in events if isinstance(event, ToolCall)] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool-calls"),
        ("function_call", "tool-calls"),
        ("content_filter", "content-filter"),
        ("eos", "unknown"),
    ],
)
async def test_finish_reasons(server: FakeServer, reason: str, finish: Any) -> None:
    assert (await played(server, delta(reason)))[-1] == Finish(finish, Usage())


# What is sent.


async def test_the_whole_request(server: FakeServer) -> None:
    request = ModelRequest(
        model=model(),
        system=("be kind", ""),
        messages=(
            UserTurn((TextBlock("look"), PNG, PDF, FileBlock("video/mp4", "data:video/mp4;base64,aGk=", "v.mp4"))),
            AssistantTurn((ReasoningBlock("hm"), TextBlock("I will"), ToolCallBlock("c1", "read", {"p": "a"}))),
            ToolTurn((ToolResultBlock("c1", "read", "done", files=(PNG,)), ToolResultBlock("c2", "grep", "none", is_error=True))),
            AssistantTurn((ToolCallBlock("c3", "read", {}),)),
            ToolTurn((ToolResultBlock("c3", "read", "x"),)),
            AssistantTurn((ReasoningBlock("only thought"),)),
        ),
        session_id="ses_1",
        tools=(ToolSpec("read", "Reads.", {"type": "object"}),),
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=100,
        options={
            "reasoningEffort": "low",
            "textVerbosity": "low",
            "promptCacheKey": "ses_1",
            "store": False,
            "chat_template_args": {"x": 1},
        },
    )
    server.plays(STOP)
    await events_of(make(server), request)
    image = {"type": "image_url", "image_url": {"url": PNG.url}}
    assert server.received[0].path == "/v1/chat/completions"
    assert server.body == {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "be kind"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    image,
                    {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF.url}},
                    {
                        "type": "text",
                        "text": "[v.mp4 (video/mp4) was attached, but this kind of file can't be sent to the model.]",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "I will",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"p":"a"}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "tool", "tool_call_id": "c2", "content": "none"},
            {"role": "user", "content": [{"type": "text", "text": "Attached to the result of the read call c1:"}, image]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c3", "content": "x"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}],
        "reasoning_effort": "low",
        "verbosity": "low",
        "prompt_cache_key": "ses_1",
        "store": False,
        "chat_template_args": {"x": 1},
    }


@pytest.mark.parametrize("body_of", [chat_body, responses_body])
def test_no_option_is_another_model_or_another_address(body_of: Any) -> None:
    elsewhere = {"model": "dear", "stream": False, "messages": [], "input": [], "api_base": "http://x", "baseURL": "http://x"}
    body = body_of(ask(model=model("m"), options={**elsewhere, "stream_options": {"include_usage": False}}))
    assert body["model"] == "m" and body["stream"] is True and (body.get("input") or body.get("messages"))
    assert "http://x" not in str(body) and "False" not in str(body.get("stream_options"))


def test_reasoning_models_of_openai_have_another_name_for_the_limit() -> None:
    body = chat_body(ask(model=model("gpt-5-mini"), max_output_tokens=7))
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("field", "value"), [("reasoning_content", "ab"), ("reasoning_details", [{"type": "reasoning.text", "text": "ab"}])]
)
def test_interleaved_reasoning_returns_in_its_field(field: Any, value: Any) -> None:
    thinker = model(capabilities=Capabilities(interleaved=InterleavedField(field=field)))
    turn = AssistantTurn((ReasoningBlock("a"), ReasoningBlock("b"), TextBlock("so")))
    assert chat_body(ask(model=thinker, messages=(turn,)))["messages"] == [{"role": "assistant", "content": "so", field: value}]


def test_cache_marks_for_claude() -> None:
    turns = (
        UserTurn((TextBlock("old"),)),
        AssistantTurn((ToolCallBlock("c", "read", {}),)),
        ToolTurn((ToolResultBlock("c", "read", "x"),)),
        UserTurn((TextBlock("new"),)),
    )
    body = chat_body(ask(model=model("anthropic/claude-sonnet-4.5"), system=("a", "b", "c"), messages=turns))
    mark = {"cache_control": {"type": "ephemeral"}}
    system_a, system_b, system_c, old, assistant, result, new = body["messages"]
    assert system_a == {"role": "system", "content": [{"type": "text", "text": "a", **mark}]}
    assert system_b == {"role": "system", "content": [{"type": "text", "text": "b", **mark}]}
    assert system_c == {"role": "system", "content": "c"}
    assert old == {"role": "user", "content": "old"}
    assert "cache_control" not in assistant
    assert result == {"role": "tool", "tool_call_id": "c", "content": "x", **mark}
    assert new == {"role": "user", "content": [{"type": "text", "text": "new", **mark}]}
