"""What a hostile model provider sends of each kind, in the three wire formats."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from flood import Chunks, repeated, sse

PIECE = "x" * 16_000


def _events(make: Callable[[int], bytes], total: int) -> Chunks:
    sent = at = 0
    while sent < total:
        event = make(at)
        sent, at = sent + len(event), at + 1
        yield event


def chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _chat_call(at: int, index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": f"c{at}", "function": {"name": "todoread", "arguments": arguments}}]}


def _chat(kind: str, total: int) -> Chunks:
    match kind:
        case "text":
            yield from _events(lambda _: chat({"content": PIECE}), total)
        case "reasoning":
            yield from _events(lambda _: chat({"reasoning_content": PIECE}), total)
        case "arguments":
            yield chat(_chat_call(0, 0, '{"a": "'))
            yield from _events(lambda _: chat({"tool_calls": [{"index": 0, "function": {"arguments": PIECE}}]}), total)
        case "nameless calls":
            yield from _events(lambda at: chat({"tool_calls": [{"index": at, "id": f"c{at}{PIECE}"}]}), total)
        case "calls":
            yield from _events(lambda at: chat(_chat_call(at, at, "{}")), total)
            yield chat({}, "tool_calls")
        case "blocks":
            yield from _events(lambda at: chat({"content" if at % 2 else "reasoning_content": "a"}), total)


def _responses(kind: str, total: int) -> Chunks:
    item = {"type": "function_call", "id": "i", "call_id": "c", "name": "todoread"}
    match kind:
        case "text":
            yield from _events(lambda _: sse({"type": "response.output_text.delta", "item_id": "i", "delta": PIECE}), total)
        case "reasoning":
            yield from _events(lambda _: sse({"type": "response.reasoning_text.delta", "item_id": "i", "delta": PIECE}), total)
        case "arguments":
            whole = {**item, "arguments": json.dumps({"a": PIECE * 200})}
            yield from _events(
                lambda at: sse({"type": "response.output_item.done", "item": {**whole, "call_id": f"c{at}"}}), total
            )
        case "calls":
            yield from _events(
                lambda at: sse({"type": "response.output_item.added", "item": {**item, "call_id": f"c{at}"}}), total
            )
        case "blocks":
            yield from _events(lambda at: sse({"type": "response.output_text.delta", "item_id": f"i{at}", "delta": "a"}), total)


def _messages(kind: str, total: int) -> Chunks:
    def start(index: int, **block: Any) -> bytes:
        return sse({"type": "content_block_start", "index": index, "content_block": block})

    def delta(**fields: Any) -> bytes:
        return sse({"type": "content_block_delta", "index": 0, "delta": fields})

    match kind:
        case "text":
            yield start(0, type="text", text="")
            yield from _events(lambda _: delta(type="text_delta", text=PIECE), total)
        case "reasoning":
            yield start(0, type="thinking", thinking="")
            yield from _events(lambda _: delta(type="thinking_delta", thinking=PIECE), total)
        case "signatures":
            yield start(0, type="thinking", thinking="")
            yield from _events(lambda _: delta(type="signature_delta", signature=PIECE), total)
        case "arguments":
            yield start(0, type="tool_use", id="c", name="todoread", input={})
            yield from _events(lambda _: delta(type="input_json_delta", partial_json=PIECE), total)
        case "whole inputs":
            yield from _events(
                lambda at: start(at, type="tool_use", id=f"c{at}", name="todoread", input={"a": PIECE * 200}), total
            )
        case "calls":
            yield from _events(lambda at: start(at, type="tool_use", id=f"c{at}", name="todoread", input={}), total)
        case "blocks":
            yield from _events(lambda at: start(at, type="text", text="a"), total)


FORMATS: dict[str, tuple[str, Callable[[str, int], Chunks]]] = {
    "chat": ("@ai-sdk/openai-compatible", _chat),
    "responses": ("@ai-sdk/openai", _responses),
    "messages": ("@ai-sdk/anthropic", _messages),
}
GATHERED = [
    *((wire, kind) for wire in FORMATS for kind in ("text", "reasoning", "arguments", "calls", "blocks")),
    ("chat", "nameless calls"),
    ("messages", "signatures"),
    ("messages", "whole inputs"),
]
"""What would be gathered, if it had no bound."""


def line(total: int) -> Chunks:
    """One without an end."""
    yield b"data: "
    yield from repeated(b"x", total)


def open_event(total: int) -> Chunks:
    """Lines of data, and no empty line that ends the event."""
    yield from repeated(b"data: " + b"x" * 1000 + b"\n", total)


def empty_lines_of_data(total: int) -> Chunks:
    yield from repeated(b"data:\n", total)


def tiny_values(total: int) -> Iterator[bytes]:
    """Events that are small enough, of values that take much more than their text."""
    event = b'data: {"choices": [' + b"{}," * 2_000_000 + b"{}]}\n\n"
    yield from repeated(event, total)


def page(total: int) -> Chunks:
    """No event stream at all."""
    yield b'{"data": "'
    yield from repeated(b"x", total)


UNENDED: dict[str, Callable[[int], Chunks]] = {
    "a line without an end": line,
    "an event without an end": open_event,
    "empty lines of data": empty_lines_of_data,
    "tiny values": tiny_values,
    "no stream": page,
}
