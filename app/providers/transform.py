"""Adapts requests to the limits of providers and models: size, media, call ids, tool schemas."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from app.providers.answers import text_bytes
from app.providers.base import (
    AssistantTurn,
    Block,
    ContextOverflow,
    FileBlock,
    ModelMessage,
    ModelRequest,
    Npm,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from app.providers.options import object_option
from app.schema.model import Model

Messages = tuple[ModelMessage, ...]

MAX_CONVERSATION_BYTES = 12 * 1024 * 1024
"""Without files: three million tokens, which no model takes, whatever its provider counts and its configuration says."""
MAX_BYTES_OF_FILES = 64 * 1024 * 1024
"""In base64: more than providers take in a request."""
_MISTRAL_ID_LENGTH = 9
_GOOGLE_THINKING = {"thinkingBudget": "thinking_budget", "thinkingLevel": "thinking_level"}
_FILLER = AssistantTurn((TextBlock("Done."),))
_NOOP = ToolSpec(
    id="_noop",
    description="Never call this. It is here because the proxy refuses a history with tool calls unless a tool is offered.",
    parameters={"type": "object", "properties": {"reason": {"type": "string", "description": "Unused"}}},
)


def prepare(request: ModelRequest, provider_options: Mapping[str, Any] | None = None) -> ModelRequest:
    """The request as this provider and model accept it. Raises ContextOverflow for one that no model takes."""
    model, blocks = request.model, [block for message in request.messages for block in message.content]
    if sum(map(_size, blocks)) > MAX_CONVERSATION_BYTES:
        raise ContextOverflow(f"The conversation has more than {MAX_CONVERSATION_BYTES} bytes")
    if sum(map(_size_of_files, blocks)) > MAX_BYTES_OF_FILES:
        raise ContextOverflow(f"The files of the conversation have more than {MAX_BYTES_OF_FILES} bytes")
    return replace(
        _for_google(request) if model.api.npm == Npm.GOOGLE else request,
        messages=prepare_messages(model, request.messages),
        tools=prepare_tools(model, request.tools, request.messages, provider_options or {}),
    )


def _size(block: Block) -> int:
    match block:
        case FileBlock():
            return 0
        case ToolCallBlock():
            return len(orjson.dumps(block.input, option=orjson.OPT_NON_STR_KEYS))
        case _:
            return text_bytes(block.text)


def _size_of_files(block: Block) -> int:
    match block:
        case FileBlock(url=url):
            return len(url)
        case ToolResultBlock(files=files):
            return sum(map(_size_of_files, files))
        case _:
            return 0


def _for_google(request: ModelRequest) -> ModelRequest:
    """Google's OpenAI-compatible endpoint rejects `top_k` and accepts thinking only in `extra_body`. Does not ask for thoughts,
    because it would mix them into the text."""
    options = {key: value for key, value in request.options.items() if key != "thinkingConfig"}
    given = object_option(request.options, "thinkingConfig") or {}
    thinking = {_GOOGLE_THINKING[key]: value for key, value in given.items() if key in _GOOGLE_THINKING}
    if thinking:
        options["extra_body"] = {"google": {"thinking_config": thinking}}
    return replace(request, options=options, top_k=None)


def prepare_messages(model: Model, messages: Messages) -> Messages:
    readable = tuple(_without_unsupported_media(model, message) for message in messages)
    if model.api.npm == Npm.ANTHROPIC or "claude" in model.api.id.lower():
        return rename_calls(readable, lambda call_id: re.sub(r"[^a-zA-Z0-9_-]", "_", call_id))
    if model.provider_id == "mistral" or "mistral" in model.api.id.lower():
        return with_filler(rename_calls(readable, _mistral_ids()))
    return readable


# Media.


def _without_unsupported_media(model: Model, message: ModelMessage) -> ModelMessage:
    match message:
        case UserTurn(content):
            problems = [_problem(model, block) if isinstance(block, FileBlock) else None for block in content]
            return UserTurn(tuple(TextBlock(text) if text else block for text, block in zip(problems, content, strict=True)))
        case ToolTurn(content):
            return ToolTurn(tuple(_readable_result(model, result) for result in content))
        case AssistantTurn():
            return message


def _readable_result(model: Model, result: ToolResultBlock) -> ToolResultBlock:
    """Images are dropped for models without vision: the provider would reject every later request."""
    problems = [(file, _problem(model, file)) for file in result.files]
    notes = [problem for _, problem in problems if problem]
    if not notes:
        return result
    files = tuple(file for file, problem in problems if not problem)
    return replace(result, text="\n\n".join(filter(None, (result.text, *notes))), files=files)


def _problem(model: Model, file: FileBlock) -> str | None:
    medium = file.medium
    if medium is None:
        return None
    name = f'"{file.filename}"' if file.filename else f"this {medium}"
    if not getattr(model.capabilities.input, medium):
        return f"ERROR: {name} cannot be read, because this model takes no {medium} input. Tell the user so."
    if medium == "image" and file.inline == "":
        return f"ERROR: {name} is empty or damaged. Ask the user for a valid image."
    return None


# Call ids.


def rename_calls(messages: Messages, rename: Callable[[str], str]) -> Messages:
    return tuple(_renamed(message, rename) for message in messages)


def _renamed(message: ModelMessage, rename: Callable[[str], str]) -> ModelMessage:
    match message:
        case AssistantTurn(content) if any(isinstance(block, ToolCallBlock) for block in content):
            return AssistantTurn(
                tuple(
                    replace(block, call_id=rename(block.call_id)) if isinstance(block, ToolCallBlock) else block
                    for block in content
                )
            )
        case ToolTurn(content):
            return ToolTurn(tuple(replace(result, call_id=rename(result.call_id)) for result in content))
    return message


def _mistral_ids() -> Callable[[str], str]:
    """Nine alphanumerics each. Ids of one provider begin alike (`toolu_01…`), so a second id with the same nine gets a hash."""
    given: dict[str, str] = {}

    def rename(call_id: str) -> str:
        if call_id not in given:
            short = re.sub(r"[^a-zA-Z0-9]", "", call_id)[:_MISTRAL_ID_LENGTH].ljust(_MISTRAL_ID_LENGTH, "0")
            hashed = hashlib.sha256(call_id.encode()).hexdigest()[:_MISTRAL_ID_LENGTH]
            given[call_id] = hashed if short in given.values() else short
        return given[call_id]

    return rename


def with_filler(messages: Messages) -> Messages:
    """Inserts an assistant message, because Mistral rejects a user message right after tool results."""
    filled: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, UserTurn) and filled and isinstance(filled[-1], ToolTurn):
            filled.append(_FILLER)
        filled.append(message)
    return tuple(filled)


# Tools.


def prepare_tools(
    model: Model, tools: tuple[ToolSpec, ...], messages: Messages, provider_options: Mapping[str, Any]
) -> tuple[ToolSpec, ...]:
    names = (model.provider_id, model.api.id)
    is_litellm = provider_options.get("litellmProxy") or any("litellm" in name.lower() for name in names)
    calls = (block for message in messages for block in message.content if isinstance(block, ToolCallBlock | ToolResultBlock))
    if not tools and is_litellm and any(calls):
        return (_NOOP,)
    if model.provider_id == "google" or "gemini" in model.api.id.lower():
        return tuple(replace(tool, parameters=gemini_schema(tool.parameters)) for tool in tools)
    return tools


def gemini_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Gemini accepts only string enums, existing names in `required`, and arrays with `items`."""
    cleaned = {key: _gemini_value(value) for key, value in schema.items()}
    if isinstance(cleaned.get("enum"), list):
        cleaned["enum"] = [str(value) for value in cleaned["enum"]]
        cleaned["type"] = "string" if cleaned.get("type") in ("integer", "number") else cleaned.get("type", "string")
    if isinstance(cleaned.get("properties"), dict) and isinstance(cleaned.get("required"), list):
        cleaned["required"] = [name for name in cleaned["required"] if name in cleaned["properties"]]
    if cleaned.get("type") == "array" and not cleaned.get("items"):
        cleaned["items"] = {"type": "string"}
    return cleaned


def _gemini_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return gemini_schema(value)
    return [_gemini_value(item) for item in value] if isinstance(value, list) else value
