"""A ModelRequest as the body of POST /chat/completions."""

from itertools import islice
from typing import Any, assert_never

import orjson

from app.provider.base import (
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    UserTurn,
)
from app.provider.wire.files import inline, medium_of, unsendable
from app.provider.wire.options import present, renamed
from app.schema.model import InterleavedField, Model

Json = dict[str, Any]

_OPTION_NAMES = {
    "reasoningEffort": "reasoning_effort",
    "textVerbosity": "verbosity",
    "promptCacheKey": "prompt_cache_key",
    "promptCacheRetention": "prompt_cache_retention",
    "serviceTier": "service_tier",
    "parallelToolCalls": "parallel_tool_calls",
    "maxCompletionTokens": "max_completion_tokens",
    "safetyIdentifier": "safety_identifier",
    "logitBias": "logit_bias",
}
_RESPONSES_ONLY = ("include", "reasoningSummary")
_NEEDS_COMPLETION_TOKENS = ("o1", "o3", "o4", "gpt-5")
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_EPHEMERAL = {"type": "ephemeral"}


def chat_body(request: ModelRequest, *, include_usage: bool = True) -> Json:
    """No option is another model, or leaves out what the answer took: what a call costs is counted by these."""
    reasoning_field = _reasoning_field(request.model)
    messages = [*_system(request), *(entry for turn in request.messages for entry in _entries(turn, reasoning_field))]
    if _caches_by_marks(request.model):
        _mark_for_cache(messages)
    return {
        **present(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k),
        **present(**{_limit_name(request.model): request.max_output_tokens}),
        **present(tools=[_tool(tool.id, tool.description, tool.parameters) for tool in request.tools] or None),
        **present(tool_choice="required" if request.requires_tool else None),
        **renamed(request.options, _OPTION_NAMES, _RESPONSES_ONLY),
        "model": request.model.api.id,
        "messages": messages,
        "stream": True,
        **({"stream_options": {"include_usage": True}} if include_usage else {}),
    }


def _limit_name(model: Model) -> str:
    """OpenAI's reasoning models reject `max_tokens`; other servers know no other name."""
    return "max_completion_tokens" if model.api.id.startswith(_NEEDS_COMPLETION_TOKENS) else "max_tokens"


def _tool(name: str, description: str, parameters: Json) -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _system(request: ModelRequest) -> list[Json]:
    return [{"role": "system", "content": text} for text in request.system if text]


def _entries(turn: ModelMessage, reasoning_field: str | None) -> list[Json]:
    match turn:
        case UserTurn(content):
            return [{"role": "user", "content": _user_content(content)}] if content else []
        case AssistantTurn():
            return _assistant(turn, reasoning_field)
        case ToolTurn(content):
            return [*map(_tool_result, content), *_attached(content)]
        case _:
            assert_never(turn)


def _user_content(content: tuple[TextBlock | FileBlock, ...]) -> str | list[Json]:
    match content:
        case (TextBlock(text),):
            return text
        case _:
            return [_part(block) for block in content]


def _part(block: TextBlock | FileBlock) -> Json:
    if isinstance(block, TextBlock):
        return _text(block.text)
    content = inline(block)
    match medium_of(block):
        case "image":
            return {"type": "image_url", "image_url": {"url": block.url}}
        case "pdf" if content is not None:
            return {"type": "file", "file": {"filename": block.filename or "document.pdf", "file_data": block.url}}
        case "audio" if content is not None and block.mime in _AUDIO_FORMATS:
            return {"type": "input_audio", "input_audio": {"data": content, "format": _AUDIO_FORMATS[block.mime]}}
        case _:
            return _text(unsendable(block))


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _assistant(turn: AssistantTurn, reasoning_field: str | None) -> list[Json]:
    match turn.content:
        case (TextBlock(text),):  # as most are
            return [{"role": "assistant", "content": text}] if text else []
    text = "".join(block.text for block in turn.content if isinstance(block, TextBlock))
    calls = [_call(block) for block in turn.content if isinstance(block, ToolCallBlock)]
    reasoning = "".join(block.text for block in turn.content if isinstance(block, ReasoningBlock))
    returned = _returned_reasoning(reasoning, reasoning_field)
    if not (text or calls or returned):
        return []
    content = text or (None if calls else "")
    return [{"role": "assistant", "content": content, **present(tool_calls=calls or None), **returned}]


def _call(block: ToolCallBlock) -> Json:
    arguments = orjson.dumps(block.input).decode()
    return {"id": block.call_id, "type": "function", "function": {"name": block.tool, "arguments": arguments}}


def _reasoning_field(model: Model) -> str | None:
    interleaved = model.capabilities.interleaved
    return interleaved.field if isinstance(interleaved, InterleavedField) else None


def _returned_reasoning(reasoning: str, field: str | None) -> Json:
    if not reasoning or field is None:
        return {}
    return {field: [{"type": "reasoning.text", "text": reasoning}] if field == "reasoning_details" else reasoning}


def _tool_result(result: ToolResultBlock) -> Json:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def _attached(results: tuple[ToolResultBlock, ...]) -> list[Json]:
    """The files of tool results, as a message after all tool messages: these contain text only and must follow their calls
    directly."""
    parts: list[Json] = []
    for result in results:
        if result.files:
            parts += [_text(f"Attached to the result of the {result.tool} call {result.call_id}:"), *map(_part, result.files)]
    return [{"role": "user", "content": parts}] if parts else []


def _caches_by_marks(model: Model) -> bool:
    names = (model.provider_id, model.id, model.api.id)
    return any(mark in name.lower() for name in names for mark in ("anthropic", "claude"))


def _mark_for_cache(messages: list[Json]) -> None:
    """Marks the first two system messages and the last two others."""
    system = islice((message for message in messages if message["role"] == "system"), 2)
    others = [message for message in messages if message["role"] != "system"][-2:]
    for message in (*system, *others):
        _mark(message)


def _mark(message: Json) -> None:
    """Proxies read the mark of system and user messages from a content part, that of others from the message."""
    if message["role"] in ("assistant", "tool"):
        message["cache_control"] = _EPHEMERAL
        return
    if isinstance(message["content"], str):
        message["content"] = [_text(message["content"])]
    message["content"][-1]["cache_control"] = _EPHEMERAL
