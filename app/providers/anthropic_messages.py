"""Anthropic's Messages API."""

import json
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, assert_never

from app.providers.answers import Blocks, GatheredText, ToolInputs
from app.providers.base import (
    AssistantTurn,
    FileBlock,
    Finish,
    FinishReason,
    Metadata,
    MissingKey,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    UnusableOption,
    Usage,
    UserTurn,
)
from app.providers.errors import in_stream
from app.providers.options import object_option, present, renamed
from app.providers.sdk_adapter import Headers, Payload, SdkAdapter, environment_headers, sdk_parameters

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_API_VERSION = "2023-06-01"
"""The version 2026-10-21 rejects every request with a temperature, top_p or top_k, and compatible servers may not support it. A
configured `anthropic-version` header takes precedence."""
_VERSION_AT_END = re.compile(r"(/v1)?/?$")
_COUNTED = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}
_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}


class MessagesReader:
    def __init__(self) -> None:
        self.finished = False
        self._blocks = Blocks()
        self._gathered = GatheredText()
        self._calls = ToolInputs(self._gathered)
        self._whole_inputs: dict[int, str] = {}
        self._signatures: defaultdict[str, list[str]] = defaultdict(list)
        self._sealed: dict[str, str] = {}
        self._usage: dict[str, int] = {}
        self._reason: FinishReason | None = None

    def read(self, payload: Payload) -> list[StreamEvent]:
        match payload.get("type"):
            case "message_start":
                self._count((payload.get("message") or {}).get("usage"))
            case "content_block_start":
                return self._block_start(payload)
            case "content_block_delta":
                return self._block_delta(payload)
            case "content_block_stop":
                return self._block_stop(payload)
            case "message_delta":
                self._count(payload.get("usage"))
                if reason := (payload.get("delta") or {}).get("stop_reason"):
                    self._reason = _REASONS.get(reason, "unknown")
            case "message_stop":
                self.finished = True
            case "error":
                raise in_stream(payload)
            case None if payload.get("error"):
                raise in_stream(payload)
        return []

    def end(self) -> list[StreamEvent]:
        events = self._blocks.end_all()
        return events if self._reason is None else [*events, Finish(self._reason, Usage(**self._usage))]

    def _block_start(self, payload: Payload) -> list[StreamEvent]:
        index, block = payload["index"], payload.get("content_block") or {}
        match block.get("type"):
            case "text":
                return [*self._blocks.start("text", str(index)), *self._blocks.delta("text", str(index), block.get("text") or "")]
            case "thinking":
                self._add_signature(str(index), block.get("signature") or "")
                started = self._blocks.start("reasoning", str(index))
                return [*started, *self._blocks.delta("reasoning", str(index), block.get("thinking") or "")]
            case "redacted_thinking":
                self._sealed[str(index)] = block.get("data") or ""
                return self._blocks.start("reasoning", str(index), self._facts(str(index)))
            case "tool_use":
                given = block.get("input") or {}  # some servers send the whole input with the start of its block
                self._gathered.add(whole := json.dumps(given))
                self._whole_inputs[index] = whole if given else ""
                return [*self._calls.start(index, block["id"], block["name"])]
            case _:
                return []

    def _block_delta(self, payload: Payload) -> list[StreamEvent]:
        index, delta = payload["index"], payload.get("delta") or {}
        match delta.get("type"):
            case "text_delta":
                return self._blocks.delta("text", str(index), delta.get("text") or "")
            case "thinking_delta":
                return self._blocks.delta("reasoning", str(index), delta.get("thinking") or "")
            case "signature_delta":
                self._add_signature(str(index), delta.get("signature") or "")
            case "input_json_delta" if index in self._calls.open:
                self._whole_inputs.pop(index, None)
                self._calls.append(index, delta.get("partial_json") or "")
        return []

    def _add_signature(self, block_id: str, fragment: str) -> None:
        self._gathered.add(block_id + fragment)
        self._signatures[block_id].append(fragment)

    def _block_stop(self, payload: Payload) -> list[StreamEvent]:
        index = payload["index"]
        if index not in self._calls.open:
            return self._blocks.end(str(index), self._facts(str(index)))
        if whole := self._whole_inputs.pop(index, None):
            self._calls.append(index, whole)
        return [self._calls.finish(index)]

    def _facts(self, block_id: str) -> Metadata | None:
        """The metadata that Anthropic requires with a returned reasoning block."""
        if block_id in self._sealed:
            return {METADATA_KEY: {"redactedData": self._sealed[block_id]}}
        signature = "".join(self._signatures.get(block_id, ()))
        return {METADATA_KEY: {"signature": signature}} if signature else None

    def _count(self, usage: Payload | None) -> None:
        """Counts are cumulative. Some servers report the input only at the end, and zero at the start."""
        for name, value in (usage or {}).items():
            if name in _COUNTED and isinstance(value, int):
                kind = _COUNTED[name]
                self._usage[kind] = max(value, self._usage.get(kind, 0))


METADATA_KEY = "anthropic"
_DEFAULT_MAX_TOKENS = 32_000
_AFTER_ANSWER = "[Go on from here.]"
"""Newer models refuse a conversation that ends with their own answer."""
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


def anthropic_body(request: ModelRequest) -> Payload:
    """Leaves out options that the API does not know, because it rejects them."""
    options = request.options
    thinking = _thinking(request)
    sampling = {} if _thinks(thinking) else present(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k)
    tools = [{"name": tool.id, "description": tool.description, "input_schema": tool.parameters} for tool in request.tools]
    body = {
        "model": request.model.api.id,
        "max_tokens": _max_tokens(request, thinking),
        "stream": True,
        **present(system=[_text(text) for text in request.system if text.strip()] or None),
        "messages": _messages(request.messages),
        **sampling,
        **present(thinking=thinking, tools=tools or None),
        **present(tool_choice={"type": "any"} if request.requires_tool and not _thinks(thinking) else None),
        **present(output_config=present(effort=options.get("effort")) or None),
        **{name: value for name, value in renamed(options, _OPTION_NAMES).items() if name in _OPTIONS},
    }
    _mark_for_cache(body)
    return body


def _thinking(request: ModelRequest) -> Payload | None:
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


def _thinks(thinking: Payload | None) -> bool:
    return thinking is not None and thinking.get("type") != "disabled"


def _max_tokens(request: ModelRequest, thinking: Payload | None) -> int:
    """The API's `max_tokens` includes thinking; ours counts the answer alone. The sum fits the model's limit."""
    limit, budget = request.model.limit.output, (thinking or {}).get("budget_tokens") or 0
    wanted = request.max_output_tokens or min(limit or _DEFAULT_MAX_TOKENS, _DEFAULT_MAX_TOKENS)
    return min(wanted + budget, limit) if limit else max(wanted, budget + 1)


def _text(text: str) -> Payload:
    return {"type": "text", "text": text}


def _messages(turns: tuple[ModelMessage, ...]) -> list[Payload]:
    """Merges consecutive turns of one role and leaves out empty ones. The first message must be the user's."""
    messages: list[Payload] = []
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


def _role_and_content(turn: ModelMessage) -> tuple[str, list[Payload]]:
    match turn:
        case UserTurn(content):
            return "user", [part for block in content for part in _parts(block)]
        case AssistantTurn(content):
            return "assistant", [part for block in content for part in _parts(block)]
        case ToolTurn(content):
            return "user", [_tool_result(result) for result in content]
        case _:
            assert_never(turn)


def _parts(block: TextBlock | FileBlock | ReasoningBlock | ToolCallBlock) -> list[Payload]:
    match block:
        case TextBlock(text):
            return [_text(text)] if text.strip() else []
        case FileBlock():
            return [_file(block)]
        case ReasoningBlock():
            return _reasoning(block)
        case ToolCallBlock():
            return [{"type": "tool_use", "id": block.call_id, "name": block.tool, "input": block.input}]
        case _:
            assert_never(block)


def _reasoning(block: ReasoningBlock) -> list[Payload]:
    """Returns only reasoning that Anthropic has signed or redacted."""
    facts = (block.metadata or {}).get(METADATA_KEY) or {}
    if "redactedData" in facts:
        return [{"type": "redacted_thinking", "data": facts["redactedData"]}]
    if facts.get("signature"):
        return [{"type": "thinking", "thinking": block.text, "signature": facts["signature"]}]
    return []


def _tool_result(result: ToolResultBlock) -> Payload:
    content: str | list[Payload] = result.text
    if result.files:
        content = [*([_text(result.text)] if result.text.strip() else []), *map(_file, result.files)]
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": content,
        **present(is_error=True if result.is_error else None),
    }


def _file(file: FileBlock) -> Payload:
    source = {"type": "base64", "media_type": file.mime, "data": file.inline}
    if file.inline is None:
        source = {"type": "url", "url": file.url}
    match file.medium:
        case "image":
            return {"type": "image", "source": source}
        case "pdf":
            return {"type": "document", "source": source, **present(title=file.filename)}
        case _:
            return _text(file.unsendable)


def _mark_for_cache(body: Payload) -> None:
    """Marks the first two system blocks and the last two messages: the API allows four marks."""
    for block in body.get("system", [])[:2]:
        block["cache_control"] = _EPHEMERAL
    for message in body["messages"][-2:]:
        markable = [block for block in message["content"] if block["type"] not in _UNMARKABLE]
        if markable:
            markable[-1]["cache_control"] = _EPHEMERAL


class Anthropic(SdkAdapter["AsyncAnthropic"]):
    path = "/v1/messages"
    sdk = "anthropic.resources.messages.messages"
    reader = MessagesReader

    def _address(self) -> str:
        if not (self._api_key or self._is_signed()):
            raise MissingKey(self._provider_id)
        base_url = self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        return _VERSION_AT_END.sub("", base_url)

    def _own_headers(self) -> Headers:
        """The key goes where servers that speak this format look for it; the SDK would send it as `Authorization`."""
        key: Headers = {} if self._is_signed() else {"x-api-key": self._api_key}
        unsaid: Headers = {"authorization": None, **environment_headers("ANTHROPIC_CUSTOM_HEADERS")}
        return {**unsaid, "anthropic-version": _API_VERSION, **key}

    def _is_signed(self) -> bool:
        return self._configures("authorization") or self._configures("x-api-key")

    def _make(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            api_key=self._api_key or "none",
            base_url=self._address(),
            max_retries=0,
            open_telemetry=False,
            http_client=DefaultAsyncHttpxClient(**self._http()),
        )

    def _send(self, client: "AsyncAnthropic", request: ModelRequest, headers: Headers) -> AbstractAsyncContextManager[Any]:
        from anthropic import omit

        body = anthropic_body(request)
        return client.messages.with_streaming_response.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=[],  # the SDK demands it; extra_body replaces it
            stream=True,
            **sdk_parameters(body, headers, omit),
        )

    async def _events(self, response: Any) -> AsyncIterator[object]:
        """The SDK's own stream skips events that a server sends without a name."""
        from anthropic import AsyncStream

        return (event.json() async for event in AsyncStream.raw_events(response.http_response))
