"""What a model is sent and what it answers, in the form that OpenTelemetry's conventions for generative AI give messages."""

from typing import Any, assert_never

from app.provider.base import (
    FileBlock,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    ReasoningDelta,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
)
from app.telemetry.records import ModelContents

Block = TextBlock | FileBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock
MessagePart = dict[str, Any]


def contents_of(request: ModelRequest) -> ModelContents:
    system = [{"type": "text", "content": text} for text in request.system]
    return ModelContents(system, [_message(message) for message in request.messages])


def add_output(contents: ModelContents, event: StreamEvent) -> None:
    match event:
        case TextDelta(text=text):
            _add_text(contents.outputs, "text", text)
        case ReasoningDelta(text=text):
            _add_text(contents.outputs, "reasoning", text)
        case ToolCall():
            contents.outputs.append(_call(event.call_id, event.tool, event.input))


def _add_text(parts: list[MessagePart], kind: str, text: str) -> None:
    if parts and parts[-1]["type"] == kind:
        parts[-1]["content"] += text
    else:
        parts.append({"type": kind, "content": text})


def _message(message: ModelMessage) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(block) for block in message.content]}


def _part(block: Block) -> MessagePart:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ReasoningBlock():
            return {"type": "reasoning", "content": block.text}
        case FileBlock():
            return {"type": "file", "mime_type": block.mime, "name": block.filename}
        case ToolCallBlock():
            return _call(block.call_id, block.tool, block.input)
        case ToolResultBlock():
            return {"type": "tool_call_response", "id": block.call_id, "response": block.text}
        case _:
            assert_never(block)


def _call(call_id: str, tool: str, arguments: dict[str, Any]) -> MessagePart:
    return {"type": "tool_call", "id": call_id, "name": tool, "arguments": arguments}
