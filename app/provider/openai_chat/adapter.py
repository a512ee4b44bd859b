"""The adapter for OpenAI's Chat Completions API."""

import json
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from app.provider.base import Finish, FinishReason, ModelRequest, StreamEvent, Usage
from app.provider.openai_chat.call_keys import CallKeys
from app.provider.openai_chat.request import chat_body
from app.provider.openai_chat.think_tags import ThinkTags
from app.provider.wire.blocks import TurningBlocks
from app.provider.wire.errors import in_stream
from app.provider.wire.openai_adapter import OpenAIAdapter
from app.provider.wire.sdk_adapter import Headers, Payload, extra_body, extra_headers
from app.provider.wire.tool_inputs import GatheredText, ToolInputs

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "content-filter",
    "error": "error",
}


class OpenAIChat(OpenAIAdapter):
    """Reads the option `includeUsage`, too."""

    path = "/chat/completions"

    @staticmethod
    def load() -> None:
        import openai.resources.chat.completions.completions  # noqa: F401

    def _reader(self) -> "ChatReader":
        return ChatReader()

    def _ask(
        self, client: "AsyncOpenAI", request: ModelRequest, headers: Headers
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":
        from openai import omit

        return client.chat.completions.with_streaming_response.create(
            model=request.model.api.id,
            messages=[],
            stream=True,
            extra_body=extra_body(chat_body(request, include_usage=self._options.get("includeUsage") is not False)),
            extra_headers=extra_headers(headers, omit),
        )


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
        events = self._blocks.say("reasoning", reasoning) if reasoning else []
        if content := delta.get("content"):
            events += self._content(content)
        for call in delta.get("tool_calls") or ():
            events += self._tool_delta(call)
        if reason := choice.get("finish_reason"):
            events += self._stop(reason)
        return events

    def _content(self, content: Any) -> list[StreamEvent]:
        if isinstance(content, str):
            return [event for kind, text in self._think.feed(content) for event in self._blocks.say(kind, text)]
        return [event for part in content for event in self._part(part)]

    def _part(self, part: Payload) -> list[StreamEvent]:
        """Mistral streams reasoning as a list of content parts."""
        if part.get("type") == "thinking":
            text = "".join(piece.get("text") or "" for piece in part.get("thinking") or ())
            return self._blocks.say("reasoning", text)
        return self._blocks.say("text", part.get("text") or "")

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
        known = _REASONS.get(reason, "unknown")
        self._reason = "tool-calls" if known == "stop" and self._called else known
        return [*self._end_blocks(), *self._calls.finish_all()]

    def _end_blocks(self) -> list[StreamEvent]:
        held = [event for kind, text in self._think.flush() for event in self._blocks.say(kind, text)]
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
