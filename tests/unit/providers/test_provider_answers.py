"""What is read of an answer in each of the three wire formats, however oddly its server writes it."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, Reply, adapter, ask, call, events_of, every_wire, finish, said, text, thought

from app.providers import base

CONVERSATIONS = Path(__file__).parent / "conversations"
"""A conversation of each API as the network carries it."""


async def played(server: FakeServer, wire: str, *events: Any) -> list[base.StreamEvent]:
    server.plays(*events)
    start, *rest = await events_of(adapter(server, wire))
    assert start == base.StreamStart()
    return rest


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(index: int | None, arguments: Any = None, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    places = {name: value for name, value in (("index", index), ("id", call_id)) if value is not None}
    return delta(tool_calls=[{"function": {"name": name, "arguments": arguments}, **places}])


STOP = delta("stop")
NO_USAGE = finish("stop")
REASONING = [*thought("reasoning-1", "hm"), *text("text-2", "so"), NO_USAGE]
COUNTS = {"prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 10}}
DETAILS = delta(reasoning_details=[{"type": "reasoning.text", "text": "a"}])
PARTS = delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}, {"type": "text", "text": "c"}])
CHAT: dict[str, tuple[list[Any], list[base.StreamEvent]]] = {
    "text, and usage after the finish reason": (
        [
            *(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), STOP),
            {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 50, **COUNTS}},
        ],
        [*text("text-1", "Hel", "lo"), finish("stop", input=600, output=50, reasoning=10, cache_read=400)],
    ),
    "nothing": ([STOP, "[DONE]"], [NO_USAGE]),
    "reasoning": ([delta(reasoning="hm"), delta(content="so"), STOP], REASONING),
    "reasoning_content": ([delta(reasoning_content="hm"), delta(content="so"), STOP], REASONING),
    "think tags": ([delta(content="<thi"), delta(content="nk>hm</think>\nso"), STOP], REASONING),
    "reasoning details, and lists": ([DETAILS, PARTS, STOP], [*thought("reasoning-1", "a", "b"), *text("text-2", "c"), NO_USAGE]),
    "no finish reason": (
        [delta(content="half"), tool(0, "{", "a", "read")],
        [*text("text-1", "half"), base.ToolInputStart("a", "read")],
    ),
    "a name that comes after the id, and the wrong reason": (
        [tool(0, None, "a"), tool(0, "{}", None, "read"), STOP],
        [*call("a", "read", {}), finish("tool-calls")],
    ),
    "parallel calls": (
        [
            *(delta(content="ok"), tool(0, "", "a", "read"), tool(1, "", "b", "grep")),
            *(tool(0, '{"x":'), tool(1, ""), tool(0, "1}"), delta("tool_calls")),
        ],
        [
            *text("text-1", "ok"),
            *(base.ToolInputStart("a", "read"), base.ToolInputStart("b", "grep")),
            *(base.ToolCall("a", "read", {"x": 1}), base.ToolCall("b", "grep", {}), finish("tool-calls")),
        ],
    ),
    "cache counts": (
        [STOP, {"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30}}}],
        [finish("stop", input=50, cache_read=20, cache_write=30)],
    ),
    "cache hits": (
        [STOP, {"usage": {"prompt_tokens": 100, "prompt_cache_hit_tokens": 40}}],
        [finish("stop", input=60, cache_read=40)],
    ),
}


def done(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **fields}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": 0, "item": fields}


def piece(kind: str, item_id: str, delta: str = "", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "item_id": item_id, "delta": delta, **fields}


def facts(item_id: str, encrypted: str | None = None) -> dict[str, Any]:
    return {"openai": {"itemId": item_id, **({"reasoningEncryptedContent": encrypted} if encrypted else {})}}


SUMMARY, ARGUMENTS = "reasoning_summary", "function_call_arguments.delta"
READ = {"type": "function_call", "name": "read"}
INPUT = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}}
OUTPUT = {"output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}}
RESPONSES: dict[str, tuple[list[Any], list[base.StreamEvent]]] = {
    "reasoning, text and usage": (
        [
            *({"type": "response.created", "response": {}}, item("added", type="reasoning", id="rs_1", summary=[])),
            piece(f"{SUMMARY}_part.added", "rs_1", summary_index=0),
            piece(f"{SUMMARY}_text.delta", "rs_1", "first", summary_index=0),
            piece(f"{SUMMARY}_part.added", "rs_1", summary_index=1),
            piece(f"{SUMMARY}_text.delta", "rs_1", "second", summary_index=1),
            item("done", type="reasoning", id="rs_1", encrypted_content="secret"),
            *(item("added", type="message", id="msg_1"), piece("output_text.delta", "msg_1", "hi")),
            *(item("done", type="message", id="msg_1"), done(usage=INPUT | OUTPUT)),
        ],
        [
            *thought("rs_1:0", "first", start=facts("rs_1"), end=facts("rs_1")),
            *thought("rs_1:1", "second", start=facts("rs_1"), end=facts("rs_1", "secret")),
            *text("msg_1", "hi", end=facts("msg_1")),
            finish("stop", input=60, output=20, reasoning=5, cache_read=40),
        ],
    ),
    "reasoning without a summary, but with its seal": (
        [*(item("added", type="reasoning", id="rs_1"), item("done", type="reasoning", id="rs_1", encrypted_content="x")), done()],
        [*thought("rs_1:0", start=facts("rs_1"), end=facts("rs_1", "x")), NO_USAGE],
    ),
    "a call": (
        [
            item("added", **READ, id="fc_1", call_id="a", arguments=""),
            piece(ARGUMENTS, "fc_1", '{"x":1}'),
            item("done", **READ, id="fc_1", call_id="a", arguments='{"x":1}'),
            done(),
        ],
        [*call("a", "read", {"x": 1}, facts("fc_1")), finish("tool-calls")],
    ),
    "a call that comes whole": (
        [item("done", **READ, id="fc_1", call_id="a", arguments="{}"), done()],
        [base.ToolCall("a", "read", {}, facts("fc_1")), finish("tool-calls")],
    ),
    "cut short": ([piece("output_text.delta", "msg_1", "half")], text("msg_1", "half")),
}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **fields}}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stop(reason: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}]


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


SEALED = {"anthropic": {"redactedData": "sealed"}}
HALF = [begin(0, type="text", text=""), more(0, "text", text="half")]
MESSAGES: dict[str, tuple[list[Any], list[base.StreamEvent]]] = {
    "signed thinking, text and usage": (
        [
            start(input_tokens=10, cache_read_input_tokens=400, cache_creation_input_tokens=30, output_tokens=1),
            *({"type": "ping"}, begin(0, type="thinking", thinking="", signature=""), more(0, "thinking", thinking="hm")),
            *(more(0, "signature", signature="si"), more(0, "signature", signature="gn"), end(0)),
            *(begin(1, type="redacted_thinking", data="sealed"), end(1)),
            *(begin(2, type="text", text=""), more(2, "text", text="so"), end(2), *stop(output_tokens=20)),
        ],
        [
            *thought("0", "hm", end={"anthropic": {"signature": "sign"}}),
            *thought("1", start=SEALED, end=SEALED),
            *text("2", "so"),
            finish("stop", input=10, output=20, cache_read=400, cache_write=30),
        ],
    ),
    "calls": (
        [
            *(begin(0, type="tool_use", id="a", name="read", input={}), more(0, "input_json", partial_json="")),
            *(more(0, "input_json", partial_json='{"x":'), more(0, "input_json", partial_json="1}"), end(0)),
            *(begin(1, type="tool_use", id="b", name="list", input={}), end(1)),
            *(begin(2, type="tool_use", id="c", name="whole", input={"y": 10**30}), end(2), *stop("tool_use")),
        ],
        [*call("a", "read", {"x": 1}), *call("b", "list", {}), *call("c", "whole", {"y": 1e30}), finish("tool-calls")],
    ),
    "input counted only at the end": (
        [start(input_tokens=0), *stop(input_tokens=7, output_tokens=2)],
        [finish("stop", input=7, output=2)],
    ),
    "cut short": (HALF, text("0", "half")),
}


STREAMS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
ROWS = [pytest.param(wire, *row, id=f"{wire}: {name}") for wire, rows in STREAMS.items() for name, row in rows.items()]


@pytest.mark.parametrize(("wire", "sent", "events"), ROWS)
async def test_what_is_read_of_a_stream(server: FakeServer, wire: str, sent: list[Any], events: list[base.StreamEvent]) -> None:
    assert await played(server, wire, *sent) == events


ENDS: dict[str, tuple[Any, dict[str, str]]] = {
    "chat": (
        lambda reason: [delta(reason)],
        {"stop": "stop", "length": "length", "tool_calls": "tool-calls", "function_call": "tool-calls"}
        | {"content_filter": "content-filter", "max_tokens": "length", "something": "unknown"}
        | dict.fromkeys(("STOP", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    ),
    "responses": (
        lambda reason: [done("incomplete", incomplete_details={"reason": reason})],
        {"max_output_tokens": "length", "content_filter": "content-filter", "something": "unknown"},
    ),
    "messages": (
        stop,
        dict.fromkeys(("end_turn", "stop_sequence", "pause_turn"), "stop")
        | {"tool_use": "tool-calls", "max_tokens": "length", "model_context_window_exceeded": "length"}
        | {"refusal": "content-filter", "new": "unknown"},
    ),
}


@every_wire
async def test_why_an_answer_ends(server: FakeServer, wire: str) -> None:
    ending, reasons = ENDS[wire]
    for reason, known in reasons.items():
        assert await played(server, wire, *ending(reason)) == [finish(known)], reason


CUT = {
    "chat": [tool(0, "{oops", "a", "read"), tool(1, "[1]", "b", "read"), delta("length")],
    "responses": [
        *(item("added", **READ, id="f", call_id="a"), item("done", **READ, id="f", call_id="a", arguments="{oops")),
        *(item("added", **READ, id="g", call_id="b"), item("done", **READ, id="g", call_id="b", arguments="[1]"), done()),
    ],
    "messages": [
        *(begin(0, type="tool_use", id="a", name="read"), more(0, "input_json", partial_json="{oops"), end(0)),
        *(begin(1, type="tool_use", id="b", name="read"), more(1, "input_json", partial_json="[1]"), end(1), *stop("tool_use")),
    ],
}


@every_wire
async def test_arguments_that_are_no_object(server: FakeServer, wire: str) -> None:
    events = await played(server, wire, *CUT[wire])
    bad = [(event.call_id, event.raw) for event in events if isinstance(event, base.InvalidToolCall)]
    assert bad == [("a", "{oops"), ("b", "[1]")]
    assert events[-1] == finish("length" if wire == "chat" else "tool-calls")


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
    "no index, no id, objects": [tool(None, {"x": 1}, None, "f"), tool(None, {"y": 2}, None, "g")],
    "one tool twice, no id": [tool(0, {"x": 1}, None, "f"), tool(0, {"y": 2}, None, "f")],
    "one tool twice, index 0": [tool(0, '{"x":1}', "a", "f"), tool(0, {"y": 2}, "b", "f")],
    "an id that comes later": [
        *(tool(0, "", None, "f"), tool(0, '{"x":1}', "a", "f"), tool(1, "", None, "g"), tool(1, '{"y":2}', "b", "g")),
    ],
    "an id that comes at the end": [tool(0, '{"x":1}', None, "f"), tool(0, "", "a", "f"), tool(1, '{"y":2}', "b", "g")],
    "indexes and one id for all": [tool(0, '{"x":1}', "a", "f"), tool(1, '{"y":', "a", "g"), tool(1, "2}", "a", "g")],
    "indexes that take turns": [tool(3, "", "a", "f"), tool(1, '{"y":', "b", "g"), tool(3, '{"x":1}'), tool(1, "2}")],
    "an index at the start only": [tool(0, "", "a", "f"), tool(None, '{"x":1}'), tool(1, "", "b", "g"), tool(None, '{"y":2}')],
}


@pytest.mark.parametrize("case", TWO_CALLS)
async def test_arguments_go_to_their_call_however_a_server_numbers_it(server: FakeServer, case: str) -> None:
    events = await played(server, "chat", *TWO_CALLS[case], delta("tool_calls"))
    starts = [event.call_id for event in events if isinstance(event, base.ToolInputStart)]
    calls = [event for event in events if isinstance(event, base.ToolCall | base.InvalidToolCall)]
    second = "f" if case.startswith("one tool") else "g"
    assert [(call.tool, getattr(call, "input", None)) for call in calls] == [("f", {"x": 1}), (second, {"y": 2})]
    assert starts == [call.call_id for call in calls] and len(set(starts)) == 2 and all(starts)


PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SEALS: dict[str, Any] = {
    "chat": None,
    "responses": {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAAAB-end"}},
    "messages": {"anthropic": {"signature": "EqQBCg"}},
}
SECONDS_OF_AN_ABORT = 0.1


def replays(server: FakeServer, name: str) -> None:
    stream = (CONVERSATIONS / name).read_bytes()
    server.reply = Reply([stream[at : at + 37] for at in range(0, len(stream), 37)])


@every_wire
async def test_reasoning_text_and_calls_side_by_side(server: FakeServer, wire: str) -> None:
    replays(server, f"{wire}_answer.sse")
    events = await events_of(adapter(server, wire))
    assert (said(events, "reasoning"), said(events)) == ("Two files; read both.", "I read both — größer 🌍.")
    assert [event.metadata for event in events if isinstance(event, base.BlockEnd) and event.kind == "reasoning"] == [SEALS[wire]]
    assert [event.call_id for event in events if isinstance(event, base.ToolInputStart)] == ["call_a", "call_b"]
    calls = [(event.call_id, event.tool, event.input) for event in events if isinstance(event, base.ToolCall)]
    assert calls == [("call_a", "read", {"filePath": "/a.txt"}), ("call_b", "read", {"filePath": "/b.txt"})]
    reasoning = 0 if wire == "messages" else 20
    assert events[-1] == finish("tool-calls", input=176, output=85, reasoning=reasoning, cache_read=1024)
    (asked,) = server.received
    assert (asked.path, asked.body["stream"]) == (PATHS[wire], True)


@every_wire
async def test_an_error_in_the_middle_and_a_refusal(server: FakeServer, wire: str) -> None:
    replays(server, f"{wire}_error.sse")
    seen: list[base.StreamEvent] = []
    with pytest.raises(base.ApiFailure) as failed:
        async for event in adapter(server, wire).stream(ask()):
            seen.append(event)
    overloaded = "Overloaded" if wire == "messages" else "The server had an error while processing your request."
    assert said(seen) == "Half" and (failed.value.message, failed.value.retryable) == (overloaded, True)
    assert len(server.received) == 1
    replays(server, f"{wire}_refusal.sse")
    events = await events_of(adapter(server, wire))
    assert said(events) == "I can't" and events[-1] == finish("content-filter", input=10, output=3)


ODD: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"choices": ["x"]},
        delta(content=5),
        delta(reasoning_details=[None]),
        delta(tool_calls=[{"id": 5, "function": {"name": 5}}]),
        {"choices": [], "usage": [1]},
    ],
    "responses": [
        {"type": "response.output_item.added", "item": {"type": "function_call"}},
        {"type": "response.output_text.delta", "item_id": "1", "delta": 5},
    ],
    "messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "read"}},
    ],
}


@every_wire
async def test_an_event_of_another_form_is_quoted(server: FakeServer, wire: str) -> None:
    for event in ODD[wire]:
        server.plays(event)
        with pytest.raises(base.ApiFailure, match="does not have the API's form") as failed:
            await events_of(adapter(server, wire))
        assert json.dumps(event) in failed.value.message


@every_wire
async def test_a_conversation_that_is_too_long(server: FakeServer, wire: str) -> None:
    body = (CONVERSATIONS / f"{wire}_overflow.json").read_text()
    server.reply = Reply([body.encode()], 400, {"content-type": "application/json", "x-request-id": "req_1"})
    with pytest.raises(base.ContextOverflow) as failed:
        await events_of(adapter(server, wire))
    assert (failed.value.status, failed.value.body, failed.value.retryable) == (400, body, False)
    assert failed.value.headers is not None and failed.value.headers["x-request-id"] == "req_1"


@every_wire
async def test_an_abort_closes_the_connection_at_once(server: FakeServer, wire: str) -> None:
    answer = (CONVERSATIONS / f"{wire}_answer.sse").read_bytes()
    server.reply = Reply([answer[: answer.index(b"read both.")]], end="hang")
    reading = asyncio.Event()

    async def read() -> None:
        async for _ in adapter(server, wire).stream(ask()):
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
