"""The adapter for Anthropic's Messages API."""

import json
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from app.provider.anthropic_messages.request import METADATA_KEY, anthropic_body
from app.provider.base import Finish, FinishReason, Metadata, ModelRequest, StreamEvent, Usage
from app.provider.wire.blocks import Blocks
from app.provider.wire.errors import in_stream, missing_key
from app.provider.wire.sdk_adapter import Headers, Payload, SdkAdapter, environment_headers, extra_body, extra_headers
from app.provider.wire.tool_inputs import GatheredText, ToolInputs

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAPIResponse

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


class Anthropic(SdkAdapter["AsyncAnthropic", "AsyncAPIResponse[Any]"]):
    path = "/v1/messages"

    @staticmethod
    def load() -> None:
        import anthropic.resources.messages.messages  # noqa: F401

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

    def _reader(self) -> "MessagesReader":
        return MessagesReader()

    def _ask(
        self, client: "AsyncAnthropic", request: ModelRequest, headers: Headers
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":
        from anthropic import omit

        body = anthropic_body(request)
        return client.messages.with_streaming_response.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=[],
            stream=True,
            extra_body=extra_body(body),
            extra_headers=extra_headers(headers, omit),
        )

    async def _events(self, response: "AsyncAPIResponse[Any]") -> AsyncIterator[object]:
        """The SDK's stream itself passes over what a server sends without the name of an event."""
        from anthropic import AsyncStream

        return (event.json() async for event in AsyncStream.raw_events(response.http_response))


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
