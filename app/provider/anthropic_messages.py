"""Anthropic's Messages API."""

import json
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, assert_never

from app.provider.answers import Blocks, GatheredText, ToolInputs
from app.provider.base import (
    AssistantTurn,
    FileBlock,
    Finish,
    FinishReason,
    Metadata,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UnusableOption,
    Usage,
    UserTurn,
)
from app.provider.call_options import object_option, present, renamed
from app.provider.errors import in_stream, missing_key
from app.provider.sdk_adapter import Headers, Payload, SdkAdapter, environment_headers, extra

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_API_VERSION = "2023-06-01"
"""2026-10-21 rejects every request with a temperature, top_p or top_k, and compatible servers may not support it. A configured
`anthropic-version` header takes precedence."""
_VERSION_AT_END = re.compile(r"(/v1)?/?$")
_COUNTED = frozenset({"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"})
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
        self._handlers = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    def read(self, payload: Payload) -> list[StreamEvent]:
        kind = payload.get("type")
        handler = self._handlers.get("error" if kind is None and payload.get("error") else str(kind))
        return handler(payload) if handler else []

    def end(self) -> list[StreamEvent]:
        events = self._blocks.end_all()
        return events if self._reason is None else [*events, Finish(self._reason, self._counted())]

    def _message_start(self, payload: Payload) -> list[StreamEvent]:
        self._count((payload.get("message") or {}).get("usage"))
        return []

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
                self._keep_input(index, block.get("input") or {})
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
            case "input_json_delta" if index in self._calls:
                self._whole_inputs.pop(index, None)
                self._calls.append(index, delta.get("partial_json") or "")
        return []

    def _keep_input(self, index: int, given: Payload) -> None:
        """Some servers send the whole input with the start of its block."""
        whole = json.dumps(given)
        self._gathered.add(whole)
        self._whole_inputs[index] = whole if given else ""

    def _add_signature(self, block_id: str, fragment: str) -> None:
        self._gathered.add(block_id + fragment)
        self._signatures[block_id].append(fragment)

    def _block_stop(self, payload: Payload) -> list[StreamEvent]:
        index = payload["index"]
        if index not in self._calls:
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

    def _message_delta(self, payload: Payload) -> list[StreamEvent]:
        self._count(payload.get("usage"))
        if reason := (payload.get("delta") or {}).get("stop_reason"):
            self._reason = _REASONS.get(reason, "unknown")
        return []

    def _message_stop(self, _payload: Payload) -> list[StreamEvent]:
        self.finished = True
        return []

    def _error(self, payload: Payload) -> list[StreamEvent]:
        raise in_stream(payload)

    def _count(self, usage: Payload | None) -> None:
        """Counts are cumulative. Some servers report the input only at the end, and zero at the start."""
        for name, value in (usage or {}).items():
            if name in _COUNTED and isinstance(value, int):
                self._usage[name] = max(value, self._usage.get(name, 0))

    def _counted(self) -> Usage:
        return Usage(
            input=self._usage.get("input_tokens", 0),
            output=self._usage.get("output_tokens", 0),
            cache_read=self._usage.get("cache_read_input_tokens", 0),
            cache_write=self._usage.get("cache_creation_input_tokens", 0),
        )


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
    match file.medium:
        case "image":
            return {"type": "image", "source": _source(file)}
        case "pdf":
            return {"type": "document", "source": _source(file), **present(title=file.filename)}
        case _:
            return _text(file.unsendable)


def _source(file: FileBlock) -> Json:
    content = file.inline
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


class Anthropic(SdkAdapter["AsyncAnthropic"]):
    path = "/v1/messages"
    sdk = "anthropic.resources.messages.messages"
    reader = MessagesReader

    def _address(self) -> str:
        if not (self._api_key or self._is_signed()):
            raise missing_key(self._provider_id)
        base_url = self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        return _VERSION_AT_END.sub("", base_url)

    def _own_headers(self) -> Headers:
        """The key goes where servers that speak this format look for it: the SDK sends it as `Authorization`."""
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

    def _ask(self, client: "AsyncAnthropic", request: ModelRequest, headers: Headers) -> AbstractAsyncContextManager[Any]:
        from anthropic import omit

        body = anthropic_body(request)
        return client.messages.with_streaming_response.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=[],
            stream=True,
            **extra(body, headers, omit),
        )

    async def _events(self, response: Any) -> AsyncIterator[object]:
        """The SDK's stream itself passes over what a server sends without the name of an event."""
        from anthropic import AsyncStream

        return (event.json() async for event in AsyncStream.raw_events(response.http_response))
