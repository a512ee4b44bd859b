"""Model calls whose answers have a bound, and what is sent of a conversation: both are held in memory in several forms."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson

from app.provider.base import (
    AnswerTooLarge,
    Ask,
    ContextOverflow,
    FileBlock,
    Finish,
    InvalidToolCall,
    Metadata,
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
)

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Ten times what models write at most; while it is stored and told, an answer takes many times its size."""
MAX_CONVERSATION_BYTES = 12 * 1024 * 1024
"""Without files: three million tokens, which no model takes, whatever its provider counts and its window is said to be."""
MAX_BLOCKS = 1000
"""Of text and reasoning."""
MAX_CALLS = 200


async def bounded(ask: Ask, max_part_bytes: int, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """Raises ContextOverflow, AnswerTooLarge."""
    if sum(_block_size(block) for message in request.messages for block in message.content) > MAX_CONVERSATION_BYTES:
        raise ContextOverflow(f"The conversation has more than {MAX_CONVERSATION_BYTES} bytes")
    size = _AnswerSize(min(max_part_bytes, MAX_ANSWER_BYTES))
    async with aclosing(ask(request)) as events:
        async for event in events:
            size.add(event)
            yield event


class _AnswerSize:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = self._blocks = self._calls = 0

    def add(self, event: StreamEvent) -> None:
        self._bytes += _size(event)
        if self._bytes > self._most_bytes:
            raise AnswerTooLarge(f"The answer has more than {self._most_bytes} bytes of text, reasoning and arguments")
        match event:
            case TextStart() | ReasoningStart():
                self._blocks += 1
            case ToolInputStart():
                self._calls += 1
        if self._blocks > MAX_BLOCKS:
            raise AnswerTooLarge(f"The answer has more than {MAX_BLOCKS} blocks of text and reasoning")
        if self._calls > MAX_CALLS:
            raise AnswerTooLarge(f"The answer has more than {MAX_CALLS} tool calls")


def _block_size(block: TextBlock | FileBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock) -> int:
    match block:
        case FileBlock():
            return 0
        case ToolCallBlock():
            return len(orjson.dumps(block.input, option=orjson.OPT_NON_STR_KEYS))
        case _:
            return _length(block.text)


def _size(event: StreamEvent) -> int:
    match event:
        case TextDelta() | ReasoningDelta():
            return _length(event.text)
        case ToolInputStart():
            return _length(event.call_id) + _length(event.tool)
        case ToolCall():
            return len(orjson.dumps(event.input)) + _metadata_size(event.metadata)
        case InvalidToolCall():
            return _length(event.raw)
        case TextStart() | ReasoningStart() | TextEnd() | ReasoningEnd():
            return _length(event.id) + _metadata_size(event.metadata)
        case Finish():
            return _metadata_size(event.metadata)
        case StreamStart():
            return 0


def _length(text: str) -> int:
    """In bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _metadata_size(metadata: Metadata | None) -> int:
    return len(orjson.dumps(metadata)) if metadata else 0
