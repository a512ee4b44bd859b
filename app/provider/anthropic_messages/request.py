"""A ModelRequest as the body of POST /v1/messages."""

from typing import Any, assert_never

from app.provider.base import (
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UnusableOption,
    UserTurn,
)
from app.provider.wire.files import inline, medium_of, unsendable
from app.provider.wire.options import object_option, present, renamed

Json = dict[str, Any]

METADATA_KEY = "anthropic"
_DEFAULT_MAX_TOKENS = 32_000
_AFTER_ANSWER = "[Go on from here.]"
"""Newer models refuse a conversation that ends with their own words."""
_BEFORE_ANSWER = "[What was asked here had no text.]"
_EPHEMERAL = {"type": "ephemeral"}
_UNMARKABLE = ("thinking", "redacted_thinking")
_OPTION_NAMES = {
    "serviceTier": "service_tier",
    "stopSequences": "stop_sequences",
    "toolChoice": "tool_choice",
    "contextManagement": "context_management",
    "outputConfig": "output_config",
}
_OPTIONS = ("metadata", "container", *_OPTION_NAMES.values())


def anthropic_body(request: ModelRequest) -> Json:
    """Leaves out options that the API does not know, because it rejects them."""
    options = request.options
    thinking = _thinking(request)
    sampling = {} if _thinks(thinking) else present(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)
    body = {
        "model": request.model.api.id,
        "max_tokens": _max_tokens(request, thinking),
        "stream": True,
        **present(system=[_text(text) for text in request.system if text.strip()] or None),
        "messages": _messages(request.messages),
        **sampling,
        **present(thinking=thinking, tools=[_tool(tool) for tool in request.tools] or None),
        **present(tool_choice={"type": "any"} if request.requires_tool and not _thinks(thinking) else None),
        **present(output_config=present(effort=options.get("effort")) or None),
        **{name: value for name, value in renamed(options, _OPTION_NAMES).items() if name in _OPTIONS},
    }
    _mark_for_cache(body)
    return body


def _thinking(request: ModelRequest) -> Json | None:
    """A budget that leaves no room for an answer, which the API rejects, becomes half of the model's limit. Raises
    UnusableOption."""
    option = object_option(request.options, "thinking")
    if option is None:
        return None
    for name in ("budgetTokens", "budget_tokens"):
        if name in option and type(option[name]) is not int:
            raise UnusableOption(f"thinking.{name}", "a number of tokens", option[name])
    thinking = renamed(option, {"budgetTokens": "budget_tokens"})
    limit = request.model.limit.output
    if 0 < limit <= thinking.get("budget_tokens", 0):
        thinking["budget_tokens"] = limit // 2
    return thinking


def _thinks(thinking: Json | None) -> bool:
    return thinking is not None and thinking.get("type") != "disabled"


def _max_tokens(request: ModelRequest, thinking: Json | None) -> int:
    """The API's `max_tokens` includes thinking; ours counts the answer alone. Together they fit the model's limit."""
    limit, budget = request.model.limit.output, (thinking or {}).get("budget_tokens") or 0
    wanted = request.max_output_tokens or min(limit or _DEFAULT_MAX_TOKENS, _DEFAULT_MAX_TOKENS)
    return min(wanted + budget, limit) if limit else max(wanted, budget + 1)


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.id, "description": tool.description, "input_schema": tool.parameters}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _messages(turns: tuple[ModelMessage, ...]) -> list[Json]:
    """Merges consecutive turns of one role and leaves out empty ones. The first message must be the user's."""
    messages: list[Json] = []
    for turn in turns:
        role, content = _role_and_content(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += content
        elif content:
            messages.append({"role": role, "content": content})
    if messages and messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [_text(_BEFORE_ANSWER)]})
    if messages and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": [_text(_AFTER_ANSWER)]})
    return messages


def _role_and_content(turn: ModelMessage) -> tuple[str, list[Json]]:
    match turn:
        case UserTurn(content):
            return "user", [part for block in content for part in _user_part(block)]
        case AssistantTurn(content):
            return "assistant", [part for block in content for part in _assistant_part(block)]
        case ToolTurn(content):
            return "user", [_tool_result(result) for result in content]
        case _:
            assert_never(turn)


def _user_part(block: TextBlock | FileBlock) -> list[Json]:
    if isinstance(block, FileBlock):
        return [_file(block)]
    return [_text(block.text)] if block.text.strip() else []


def _assistant_part(block: TextBlock | ReasoningBlock | ToolCallBlock) -> list[Json]:
    match block:
        case TextBlock(text):
            return [_text(text)] if text.strip() else []
        case ReasoningBlock():
            return _reasoning(block)
        case ToolCallBlock():
            return [{"type": "tool_use", "id": block.call_id, "name": block.tool, "input": block.input}]
        case _:
            assert_never(block)


def _reasoning(block: ReasoningBlock) -> list[Json]:
    """Returns only reasoning that Anthropic has signed or redacted."""
    facts = (block.metadata or {}).get(METADATA_KEY) or {}
    if "redactedData" in facts:
        return [{"type": "redacted_thinking", "data": facts["redactedData"]}]
    if facts.get("signature"):
        return [{"type": "thinking", "thinking": block.text, "signature": facts["signature"]}]
    return []


def _tool_result(result: ToolResultBlock) -> Json:
    content: str | list[Json] = result.text
    if result.files:
        content = [*([_text(result.text)] if result.text.strip() else []), *map(_file, result.files)]
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": content,
        **present(is_error=True if result.is_error else None),
    }


def _file(file: FileBlock) -> Json:
    match medium_of(file):
        case "image":
            return {"type": "image", "source": _source(file)}
        case "pdf":
            return {"type": "document", "source": _source(file), **present(title=file.filename)}
        case _:
            return _text(unsendable(file))


def _source(file: FileBlock) -> Json:
    content = inline(file)
    if content is None:
        return {"type": "url", "url": file.url}
    return {"type": "base64", "media_type": file.mime, "data": content}


def _mark_for_cache(body: Json) -> None:
    """Marks the first two system blocks and the last two messages: the API allows four marks."""
    for block in body.get("system", [])[:2]:
        block["cache_control"] = _EPHEMERAL
    for message in body["messages"][-2:]:
        markable = [block for block in message["content"] if block["type"] not in _UNMARKABLE]
        if markable:
            markable[-1]["cache_control"] = _EPHEMERAL
