"""Estimates the tokens of a conversation, for providers that do not count them."""

import re
from collections.abc import Iterable
from typing import assert_never

import orjson

from app.provider.base import (
    FileBlock,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from app.schema.part import Tokens

CHARACTERS_PER_TOKEN = 4
DENSE_CHARACTERS_PER_TOKEN = 1.5
"""For Chinese, Japanese and Korean: a token has one or two characters."""

FILE_TOKENS = 1_500
"""For an image or a page of a document. Providers' counts depend little on the size in bytes."""

_DENSE = r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
"""Compiled with the first text that is not plain ASCII: it is a long one."""

_Block = TextBlock | FileBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock


def estimate(text: str) -> int:
    dense = len(re.findall(_DENSE, text)) if not text.isascii() else 0
    return round((len(text) - dense) / CHARACTERS_PER_TOKEN + dense / DENSE_CHARACTERS_PER_TOKEN)


def estimate_request(request: ModelRequest) -> int:
    texts = [*request.system, *map(_offered, request.tools)]
    return sum(map(estimate, texts)) + estimate_messages(request.messages)


def estimate_messages(messages: Iterable[ModelMessage]) -> int:
    return sum(_estimate_block(block) for message in messages for block in message.content)


def _estimate_block(block: _Block) -> int:
    match block:
        case TextBlock(text) | ReasoningBlock(text):
            return estimate(text)
        case FileBlock():
            return FILE_TOKENS
        case ToolCallBlock():
            return estimate(block.tool) + estimate(orjson.dumps(block.input, option=orjson.OPT_NON_STR_KEYS).decode())
        case ToolResultBlock():
            return estimate(block.text) + FILE_TOKENS * len(block.files)
        case _:
            assert_never(block)


def _offered(tool: ToolSpec) -> str:
    return f"{tool.id} {tool.description} {orjson.dumps(tool.parameters).decode()}"


def counted(tokens: Tokens) -> int | None:
    """The tokens of the conversation after an answer, by the provider's count; None if the provider does not count."""
    sent = tokens.input + tokens.cache.read
    return sent + tokens.output if sent else None
