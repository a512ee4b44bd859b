"""How many tokens a text, a conversation or a request has, where no provider says. Pure."""

import re
from collections.abc import Iterable
from typing import assert_never

import orjson

from app.providers.base import (
    Block,
    FileBlock,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

CHARACTERS_PER_TOKEN = 4
DENSE_CHARACTERS_PER_TOKEN = 1.5
"""For Chinese, Japanese and Korean: a token has one or two characters."""

FILE_TOKENS = 1_500
"""For an image or a page of a document. Providers' counts depend little on the size in bytes."""

_DENSE = r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
"""Compiled with the first text that is not plain ASCII, because that takes long."""


def estimate(text: str) -> int:
    dense = len(re.findall(_DENSE, text)) if not text.isascii() else 0
    return round((len(text) - dense) / CHARACTERS_PER_TOKEN + dense / DENSE_CHARACTERS_PER_TOKEN)


def estimate_request(request: ModelRequest) -> int:
    tools = [f"{tool.id} {tool.description} {orjson.dumps(tool.parameters).decode()}" for tool in request.tools]
    return sum(map(estimate, (*request.system, *tools))) + estimate_messages(request.messages)


def estimate_messages(messages: Iterable[ModelMessage]) -> int:
    return sum(_estimate_block(block) for message in messages for block in message.content)


def _estimate_block(block: Block) -> int:
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
