"""Converts the SDK's results to our values."""

import json
from collections.abc import Iterable
from typing import assert_never

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from app.mcp.values import Content, ServerPrompt, ServerResource, ServerTool
from app.schema.part import FileContent

UNTYPED = "application/octet-stream"


def of_tool_call(result: CallToolResult) -> Content:
    """A result of data alone becomes JSON text."""
    content = _of_blocks(result.content)
    texts = content.texts
    if result.structured_content is not None and not texts and not content.files:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return Content(texts, content.files, is_error=bool(result.is_error))


def of_prompt(result: GetPromptResult) -> Content:
    return _of_blocks(message.content for message in result.messages)


def of_resource(result: ReadResourceResult) -> Content:
    return _sorted([_of_contents(contents, None) for contents in result.contents])


def _of_blocks(blocks: Iterable[ContentBlock]) -> Content:
    return _sorted([_of_block(block) for block in blocks])


def _sorted(items: list[str | FileContent]) -> Content:
    texts = [item for item in items if isinstance(item, str)]
    return Content(texts, [item for item in items if isinstance(item, FileContent)])


def _of_block(block: ContentBlock) -> str | FileContent:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _file(block.mime_type, block.data)
        case EmbeddedResource():
            return _of_contents(block.resource, block.resource.uri.rpartition("/")[2] or None)
        case ResourceLink():
            described = f": {block.description}" if block.description else ""
            return f"[Resource {block.name} at {block.uri}{described}]"
        case _:
            assert_never(block)


def _of_contents(contents: TextResourceContents | BlobResourceContents, filename: str | None) -> str | FileContent:
    if isinstance(contents, TextResourceContents):
        return contents.text
    return _file(contents.mime_type or UNTYPED, contents.blob, filename)


def _file(mime: str, base64: str, filename: str | None = None) -> FileContent:
    return FileContent(mime=mime, filename=filename, url=f"data:{mime};base64,{base64}")


def tool(server: str, found: Tool) -> ServerTool:
    schema = {"type": "object", "properties": {}, **found.input_schema}
    return ServerTool(server, found.name, found.description or found.title or "", schema)


def prompt(server: str, found: Prompt) -> ServerPrompt:
    arguments = tuple(argument.name for argument in found.arguments or ())
    return ServerPrompt(server, found.name, found.description or found.title, arguments)


def resource(server: str, found: Resource) -> ServerResource:
    return ServerResource(server, found.name, found.uri, found.description, found.mime_type)
