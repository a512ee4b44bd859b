"""What a hostile model provider sends of each kind, in the three wire formats."""

import json
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from flood import Chunks, repeated, sse

PIECE = "x" * 16_000


class Kind(NamedTuple):
    """One event after the other, by its number, between those that come first and last."""

    event: Callable[[int], bytes]
    first: tuple[bytes, ...] = ()
    last: tuple[bytes, ...] = ()


def send(kinds: dict[str, Kind], kind: str, total: int) -> Chunks:
    """So many bytes of it."""
    event, first, last = kinds[kind]
    yield from first
    sent = at = 0
    while sent < total:
        made = event(at)
        sent, at = sent + len(made), at + 1
        yield made
    yield from last


def chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def chat_call(index: int, arguments: str, **fields: Any) -> bytes:
    return chat({"tool_calls": [{"index": index, **fields, "function": {"name": "todoread", "arguments": arguments}}]})


CHAT = {
    "text": Kind(lambda _: chat({"content": PIECE})),
    "reasoning": Kind(lambda _: chat({"reasoning_content": PIECE})),
    "arguments": Kind(
        lambda _: chat({"tool_calls": [{"index": 0, "function": {"arguments": PIECE}}]}), (chat_call(0, '{"a": "', id="c0"),)
    ),
    "nameless calls": Kind(lambda at: chat({"tool_calls": [{"index": at, "id": f"c{at}{PIECE}"}]})),
    "calls": Kind(lambda at: chat_call(at, "{}", id=f"c{at}"), last=(chat({}, "tool_calls"),)),
    "blocks": Kind(lambda at: chat({"content" if at % 2 else "reasoning_content": "a"})),
}


def item(kind: str, call_id: str, **fields: Any) -> bytes:
    call = {"type": "function_call", "id": "i", "call_id": call_id, "name": "todoread"}
    return sse({"type": f"response.output_item.{kind}", "item": {**call, **fields}})


def words(item_id: str, delta: str, kind: str = "output") -> bytes:
    return sse({"type": f"response.{kind}_text.delta", "item_id": item_id, "delta": delta})


MANY = {"a": PIECE * 200}
RESPONSES = {
    "text": Kind(lambda _: words("i", PIECE)),
    "reasoning": Kind(lambda _: words("i", PIECE, "reasoning")),
    "arguments": Kind(lambda at: item("done", f"c{at}", arguments=json.dumps(MANY))),
    "calls": Kind(lambda at: item("added", f"c{at}")),
    "blocks": Kind(lambda at: words(f"i{at}", "a")),
}


def start(index: int, **block: Any) -> bytes:
    return sse({"type": "content_block_start", "index": index, "content_block": block})


def use(index: int, **given: Any) -> bytes:
    return start(index, type="tool_use", id=f"c{index}", name="todoread", input=given)


def delta(kind: str, **fields: Any) -> bytes:
    return sse({"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", **fields}})


THINKING = (start(0, type="thinking", thinking=""),)
MESSAGES = {
    "text": Kind(lambda _: delta("text", text=PIECE), (start(0, type="text", text=""),)),
    "reasoning": Kind(lambda _: delta("thinking", thinking=PIECE), THINKING),
    "signatures": Kind(lambda _: delta("signature", signature=PIECE), THINKING),
    "arguments": Kind(lambda _: delta("input_json", partial_json=PIECE), (use(0),)),
    "whole inputs": Kind(lambda at: use(at, **MANY)),
    "calls": Kind(use),
    "blocks": Kind(lambda at: start(at, type="text", text="a")),
}

KINDS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
NPM = {"chat": "@ai-sdk/openai-compatible", "responses": "@ai-sdk/openai", "messages": "@ai-sdk/anthropic"}
FORMATS: dict[str, tuple[str, Callable[[str, int], Chunks]]] = {
    wire: (NPM[wire], partial(send, kinds)) for wire, kinds in KINDS.items()
}
GATHERED = [(wire, kind) for wire, kinds in KINDS.items() for kind in kinds]
"""What would be gathered, if it had no bound."""

UNENDED: dict[str, Callable[[int], Chunks]] = {
    "a line without an end": lambda total: chain([b"data: "], repeated(b"x", total)),
    "an event without an end": lambda total: repeated(b"data: " + b"x" * 1000 + b"\n", total),
    "empty lines of data": lambda total: repeated(b"data:\n", total),
    "tiny values": lambda total: repeated(b'data: {"choices": [' + b"{}," * 2_000_000 + b"{}]}\n\n", total),
    "no stream": lambda total: chain([b'{"data": "'], repeated(b"x", total)),
}
"""The tiny values are events that are small enough, of values that take much more than their text."""
