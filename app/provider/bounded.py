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
_BLOCK_STARTS = (TextStart, ReasoningStart)


async def bounded(ask: Ask, max_part_bytes: int, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """Raises ContextOverflow, AnswerTooLarge."""
    if sum(_block_size(block) for message in request.messages for block in message.content) > MAX_CONVERSATION_BYTES:
        raise ContextOverflow(f"The conversation has more than {MAX_CONVERSATION_BYTES} bytes")
    most_bytes = min(max_part_bytes, MAX_ANSWER_BYTES)
    size = blocks = calls = 0
    async with aclosing(ask(request)) as events:
        async for event in events:
            size += _size(event)
            blocks += isinstance(event, _BLOCK_STARTS)
            calls += isinstance(event, ToolInputStart)
            if size > most_bytes:
                raise AnswerTooLarge(f"The answer has more than {most_bytes} bytes of text, reasoning and arguments")
            if blocks > MAX_BLOCKS:
                raise AnswerTooLarge(f"The answer has more than {MAX_BLOCKS} blocks of text and reasoning")
            if calls > MAX_CALLS:
                raise AnswerTooLarge(f"The answer has more than {MAX_CALLS} tool calls")
            yield event


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
