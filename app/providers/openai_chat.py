"""OpenAI's Chat Completions API, which most other servers speak too, with deviations."""

import json
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, assert_never

import orjson

from app.providers.answers import GatheredText, ToolInput, ToolInputs, TurningBlocks
from app.providers.base import (
    AssistantTurn,
    BlockKind,
    Finish,
    FinishReason,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    Usage,
    UserBlock,
    UserTurn,
)
from app.providers.errors import in_stream
from app.providers.options import present, renamed
from app.providers.sdk_adapter import Headers, OpenAIAdapter, Payload, sdk_parameters
from app.schema.model import InterleavedField, Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class CallKeys:
    """The index identifies a call. Some servers send none, or the same for every call: then a new id or name begins a call, and a
    piece with neither continues the newest."""

    def __init__(self, calls: ToolInputs) -> None:
        self._calls = calls
        self._keys: list[int] = []
        self._of_index: dict[int, list[int]] = {}

    def key_of(self, index: object, call_id: str | None, name: str, fragment: str) -> int:
        """`index` as the server sends it. A new key begins a call."""
        known = self._of_index.setdefault(index, []) if isinstance(index, int) else self._keys
        for key in reversed(known):
            if call_id and self._calls.open[key].given_id == call_id:
                return key
        if known and not _begins(self._calls.open[known[-1]], call_id, name, fragment):
            return known[-1]
        new = len(self._keys)
        self._keys.append(new)
        if known is not self._keys:
            known.append(new)
        return new


def _begins(newest: ToolInput, call_id: str | None, name: str, fragment: str) -> bool:
    """Whether a piece with a new id, or without one, begins another call than the newest of its index."""
    if not name or not newest.tool:
        return False
    if call_id and newest.given_id:
        return True
    return name != newest.tool or (bool(fragment) and newest.is_complete())


_TAGS: dict[BlockKind, str] = {"text": "<think>", "reasoning": "</think>"}
_OTHER: dict[BlockKind, BlockKind] = {"text": "reasoning", "reasoning": "text"}


class ThinkTags:
    """Splits streamed text into text and reasoning, and drops the whitespace around tags."""

    def __init__(self) -> None:
        self._kind: BlockKind = "text"
        self._held = ""
        self._after_tag = False

    def feed(self, text: str) -> list[tuple[BlockKind, str]]:
        """Returns the complete pieces; holds back what may be the start of a tag."""
        if self._kind == "text" and not self._held and not self._after_tag and "<" not in text:
            return [("text", text)]
        self._held += text
        pieces: list[tuple[BlockKind, str]] = []
        while (at := self._held.find(_TAGS[self._kind])) >= 0:
            pieces += self._take(at)
            self._held = self._held[len(_TAGS[self._kind]) :]
            self._kind = _OTHER[self._kind]
            self._after_tag = True
        return pieces + self._take(len(self._held) - _partial_tag(self._held, _TAGS[self._kind]))

    def flush(self) -> list[tuple[BlockKind, str]]:
        return self._take(len(self._held))

    def _take(self, length: int) -> list[tuple[BlockKind, str]]:
        piece, self._held = self._held[:length], self._held[length:]
        if self._after_tag:
            piece = piece.lstrip()
        if not piece:
            return []
        self._after_tag = False
        return [(self._kind, piece)]


def _partial_tag(text: str, tag: str) -> int:
    """The length of the longest suffix of `text` that is a prefix of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)


_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "content-filter",
    "error": "error",
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    "max_tokens": "length",
}
"""The last five are of servers that pass on their engine's own words. An answer of unknown reason would be asked for again."""


class ChatReader:
    """Reads the stream to its end, because the usage follows the finish reason."""

    finished = False

    def __init__(self) -> None:
        self._blocks = TurningBlocks()
        self._think = ThinkTags()
        self._calls = ToolInputs(GatheredText())
        self._keys = CallKeys(self._calls)
        self._called = False
        self._usage = Usage()
        self._reason: FinishReason | None = None

    def read(self, payload: Payload) -> list[StreamEvent]:
        if payload.get("error") or payload.get("object") == "error":
            raise in_stream(payload)
        if usage := payload.get("usage"):
            self._usage = _usage(usage)
        choices = payload.get("choices")
        return self._choice(choices[0]) if choices else []

    def end(self) -> list[StreamEvent]:
        events = self._end_blocks()
        return events if self._reason is None else [*events, Finish(self._reason, self._usage)]

    def _choice(self, choice: Payload) -> list[StreamEvent]:
        delta = choice.get("delta") or {}
        reasoning = _reasoning(delta)
        events = self._blocks.append("reasoning", reasoning) if reasoning else []
        if content := delta.get("content"):
            events += self._content(content)
        for call in delta.get("tool_calls") or ():
            events += self._tool_delta(call)
        if reason := choice.get("finish_reason"):
            events += self._stop(reason)
        return events

    def _content(self, content: Any) -> list[StreamEvent]:
        if isinstance(content, str):
            return [event for kind, text in self._think.feed(content) for event in self._blocks.append(kind, text)]
        return [event for part in content for event in self._content_part(part)]

    def _content_part(self, part: Payload) -> list[StreamEvent]:
        """Mistral streams reasoning as a list of content parts."""
        if part.get("type") == "thinking":
            text = "".join(piece.get("text") or "" for piece in part.get("thinking") or ())
            return self._blocks.append("reasoning", text)
        return self._blocks.append("text", part.get("text") or "")

    def _tool_delta(self, delta: Payload) -> list[StreamEvent]:
        function = delta.get("function") or {}
        name, fragment = function.get("name") or "", _fragment(function.get("arguments"))
        key = self._keys.key_of(delta.get("index"), delta.get("id"), name, fragment)
        started = self._calls.start(key, delta.get("id"), name)
        self._calls.append(key, fragment)
        if not started:
            return []
        self._called = True
        return [*self._end_blocks(), *started]

    def _stop(self, reason: str) -> list[StreamEvent]:
        """Some servers send `stop` although they called tools."""
        known = _REASONS.get(str(reason).lower(), "unknown")
        self._reason = "tool-calls" if known == "stop" and self._called else known
        started = [key for key, call in self._calls.open.items() if call.tool]
        return [*self._end_blocks(), *map(self._calls.finish, started)]

    def _end_blocks(self) -> list[StreamEvent]:
        held = [event for kind, text in self._think.flush() for event in self._blocks.append(kind, text)]
        return [*held, *self._blocks.end()]


def _reasoning(delta: Payload) -> str:
    text = delta.get("reasoning_content") or delta.get("reasoning")
    if isinstance(text, str):
        return text
    details = delta.get("reasoning_details")
    return "".join(detail.get("text") or detail.get("summary") or "" for detail in details) if details else ""


def _fragment(arguments: Any) -> str:
    """Some servers send the arguments as an object instead of a JSON string."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments)


def _usage(usage: Payload) -> Usage:
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    read = prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    written = prompt.get("cache_write_tokens") or 0
    return Usage(
        input=max((usage.get("prompt_tokens") or 0) - read - written, 0),
        output=usage.get("completion_tokens") or 0,
        reasoning=completion.get("reasoning_tokens") or 0,
        cache_read=read,
        cache_write=written,
    )


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


def chat_body(request: ModelRequest, *, include_usage: bool = True) -> Payload:
    """No option may change the model, or leave out the usage: a call's cost is computed from both."""
    # OpenAI's reasoning models reject `max_tokens`; other servers know no other name.
    is_of_openai = request.model.api.id.startswith(_NEEDS_COMPLETION_TOKENS)
    limit_name = "max_completion_tokens" if is_of_openai else "max_tokens"
    tools = [
        {"type": "function", "function": {"name": tool.id, "description": tool.description, "parameters": tool.parameters}}
        for tool in request.tools
    ]
    return {
        **present(temperature=request.temperature, top_p=request.top_p, top_k=request.top_k),
        **present(**{limit_name: request.max_output_tokens}, tools=tools or None),
        **present(tool_choice="required" if request.requires_tool else None),
        **renamed(request.options, _OPTION_NAMES, _RESPONSES_ONLY),
        "model": request.model.api.id,
        "messages": _messages(request),
        "stream": True,
        **({"stream_options": {"include_usage": True}} if include_usage else {}),
    }


def _messages(request: ModelRequest) -> list[Payload]:
    interleaved = request.model.capabilities.interleaved
    reasoning_field = interleaved.field if isinstance(interleaved, InterleavedField) else None
    caches_by_marks = _caches_by_marks(request.model)
    system = [text for text in request.system if text] if caches_by_marks else request.system_in_one
    messages: list[Payload] = [{"role": "system", "content": text} for text in system]
    messages += [entry for turn in request.messages for entry in _entries(turn, reasoning_field)]
    if caches_by_marks:
        _mark_for_cache(messages)
    return messages


def _entries(turn: ModelMessage, reasoning_field: str | None) -> list[Payload]:
    match turn:
        case UserTurn(content=(TextBlock(text),)):
            return [{"role": "user", "content": text}]
        case UserTurn(content):
            return [{"role": "user", "content": [*map(_part, content)]}] if content else []
        case AssistantTurn():
            return _assistant(turn, reasoning_field)
        case ToolTurn(content):
            results = [{"role": "tool", "tool_call_id": result.call_id, "content": result.text} for result in content]
            return [*results, *_attached(content)]
        case _:
            assert_never(turn)


def _part(block: UserBlock) -> Payload:
    if isinstance(block, TextBlock):
        return _text(block.text)
    content = block.inline
    match block.medium:
        case "image":
            return {"type": "image_url", "image_url": {"url": block.url}}
        case "pdf" if content is not None:
            return {"type": "file", "file": {"filename": block.filename or "document.pdf", "file_data": block.url}}
        case "audio" if content is not None and block.mime in _AUDIO_FORMATS:
            return {"type": "input_audio", "input_audio": {"data": content, "format": _AUDIO_FORMATS[block.mime]}}
        case _:
            return _text(block.unsendable)


def _text(text: str) -> Payload:
    return {"type": "text", "text": text}


def _assistant(turn: AssistantTurn, reasoning_field: str | None) -> list[Payload]:
    match turn.content:
        case (TextBlock(text),):  # as in most turns
            return [{"role": "assistant", "content": text}] if text else []
    text = "\n".join(block.text for block in turn.content if isinstance(block, TextBlock) and block.text)
    calls = [_call(block) for block in turn.content if isinstance(block, ToolCallBlock)]
    reasoning = "".join(block.text for block in turn.content if isinstance(block, ReasoningBlock))
    returned = _returned_reasoning(reasoning, reasoning_field)
    if not (text or calls or returned):
        return []
    content = text or (None if calls else "")
    return [{"role": "assistant", "content": content, **present(tool_calls=calls or None), **returned}]


def _call(block: ToolCallBlock) -> Payload:
    arguments = orjson.dumps(block.input).decode()
    return {"id": block.call_id, "type": "function", "function": {"name": block.tool, "arguments": arguments}}


def _returned_reasoning(reasoning: str, field: str | None) -> Payload:
    if not reasoning or field is None:
        return {}
    return {field: [{"type": "reasoning.text", "text": reasoning}] if field == "reasoning_details" else reasoning}


def _attached(results: tuple[ToolResultBlock, ...]) -> list[Payload]:
    """The files of tool results, as a message after all tool messages: these contain text only and must follow their calls
    directly."""
    parts: list[Payload] = []
    for result in results:
        if result.files:
            parts += [_text(f"Attached to the result of the {result.tool} call {result.call_id}:"), *map(_part, result.files)]
    return [{"role": "user", "content": parts}] if parts else []


def _caches_by_marks(model: Model) -> bool:
    names = (model.provider_id, model.id, model.api.id)
    return any(mark in name.lower() for name in names for mark in ("anthropic", "claude"))


def _mark_for_cache(messages: list[Payload]) -> None:
    """Marks the first two system messages and the last two others."""
    system = [message for message in messages if message["role"] == "system"][:2]
    others = [message for message in messages if message["role"] != "system"][-2:]
    for message in (*system, *others):
        _mark(message)


def _mark(message: Payload) -> None:
    """Proxies read the mark of system and user messages from a content part, that of others from the message."""
    if message["role"] in ("assistant", "tool"):
        message["cache_control"] = _EPHEMERAL
        return
    if isinstance(message["content"], str):
        message["content"] = [_text(message["content"])]
    message["content"][-1]["cache_control"] = _EPHEMERAL


class OpenAIChat(OpenAIAdapter):
    """Also reads the option `includeUsage`."""

    path = "/chat/completions"
    sdk = "openai.resources.chat.completions.completions"
    reader = ChatReader

    def _send(self, client: "AsyncOpenAI", request: ModelRequest, headers: Headers) -> AbstractAsyncContextManager[Any]:
        from openai import omit

        body = chat_body(request, include_usage=self._options.get("includeUsage") is not False)
        return client.chat.completions.with_streaming_response.create(
            model=request.model.api.id, messages=[], stream=True, **sdk_parameters(body, headers, omit)
        )
