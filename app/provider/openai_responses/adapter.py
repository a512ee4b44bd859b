"""The adapter for OpenAI's Responses API."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from app.provider.base import Finish, FinishReason, Metadata, ModelRequest, StreamEvent, ToolInputStart, Usage
from app.provider.openai_responses.request import METADATA_KEY, responses_body
from app.provider.wire.blocks import Blocks
from app.provider.wire.errors import in_stream
from app.provider.wire.openai_adapter import OpenAIAdapter
from app.provider.wire.options import present
from app.provider.wire.sdk_adapter import Headers, Payload, extra_body, extra_headers
from app.provider.wire.tool_inputs import read_call

if TYPE_CHECKING:
    from openai import AsyncAPIResponse, AsyncOpenAI

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content-filter"}


class OpenAIResponses(OpenAIAdapter):
    path = "/responses"

    @staticmethod
    def load() -> None:
        import openai.resources.responses.responses  # noqa: F401

    def _reader(self) -> "ResponsesReader":
        return ResponsesReader()

    def _ask(
        self, client: "AsyncOpenAI", request: ModelRequest, headers: Headers
    ) -> "AbstractAsyncContextManager[AsyncAPIResponse[Any]]":
        from openai import omit

        return client.responses.with_streaming_response.create(
            stream=True, extra_body=extra_body(responses_body(request)), extra_headers=extra_headers(headers, omit)
        )


class ResponsesReader:
    """Streams one text block per item and one reasoning block per summary. Emits a call when its item is complete."""

    def __init__(self) -> None:
        self.finished = False
        self._blocks = Blocks()
        self._called = False
        self._summary: dict[str, str] = {}
        self._finish: Finish | None = None
        self._handlers = {
            "response.output_text.delta": self._text,
            "response.refusal.delta": self._text,
            "response.reasoning_summary_part.added": self._summary_added,
            "response.reasoning_summary_text.delta": self._reasoning,
            "response.reasoning_text.delta": self._reasoning,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._completed,
            "response.incomplete": self._completed,
            "response.failed": self._failed,
            "error": self._failed,
        }

    def read(self, payload: Payload) -> list[StreamEvent]:
        kind = payload.get("type")
        if kind is None and payload.get("error"):
            raise in_stream(payload)
        handler = self._handlers.get(str(kind))
        return handler(payload) if handler else []

    def end(self) -> list[StreamEvent]:
        events = self._blocks.end_all()
        return events if self._finish is None else [*events, self._finish]

    def _text(self, payload: Payload) -> list[StreamEvent]:
        return self._blocks.delta("text", str(payload["item_id"]), payload.get("delta") or "")

    def _reasoning(self, payload: Payload) -> list[StreamEvent]:
        item_id = str(payload["item_id"])
        return self._blocks.delta("reasoning", self._summary.get(item_id, f"{item_id}:0"), payload.get("delta") or "")

    def _summary_added(self, payload: Payload) -> list[StreamEvent]:
        """The item has started the first summary; each further one ends its predecessor."""
        item_id, block_id = str(payload["item_id"]), f"{payload['item_id']}:{payload.get('summary_index', 0)}"
        before = self._summary.get(item_id)
        self._summary[item_id] = block_id
        ended = self._blocks.end(before, _metadata(item_id)) if before is not None and before != block_id else []
        return [*ended, *self._blocks.start("reasoning", block_id, _metadata(item_id))]

    def _item_added(self, payload: Payload) -> list[StreamEvent]:
        item = payload.get("item") or {}
        match item.get("type"):
            case "function_call":
                self._called = True
                return [ToolInputStart(item["call_id"], item["name"])]
            case "reasoning":
                return self._summary_added({"item_id": item["id"], "summary_index": 0})
            case _:
                return []

    def _item_done(self, payload: Payload) -> list[StreamEvent]:
        item = payload.get("item") or {}
        item_id = str(item.get("id"))
        match item.get("type"):
            case "function_call":
                self._called = True
                return [read_call(item["call_id"], item["name"], item.get("arguments") or "", _metadata(item.get("id")))]
            case "reasoning":
                sealed = _metadata(item_id, item.get("encrypted_content"))
                return self._blocks.end(self._summary.get(item_id, f"{item_id}:0"), sealed)
            case "message":
                return self._blocks.end(item_id, _metadata(item_id))
            case _:
                return []

    def _completed(self, payload: Payload) -> list[StreamEvent]:
        response = payload.get("response") or {}
        self._finish = Finish(self._reason(response), _usage(response.get("usage") or {}))
        self.finished = True
        return []

    def _reason(self, response: Payload) -> FinishReason:
        if response.get("status") == "incomplete":
            cause = (response.get("incomplete_details") or {}).get("reason")
            return _INCOMPLETE.get(str(cause), "unknown")
        return "tool-calls" if self._called else "stop"

    def _failed(self, payload: Payload) -> list[StreamEvent]:
        response = payload.get("response")
        raise in_stream({"error": response.get("error")} if response else payload)


def _metadata(item_id: str | None, encrypted: str | None = None) -> Metadata:
    return {METADATA_KEY: present(itemId=item_id, reasoningEncryptedContent=encrypted)}


def _usage(usage: Payload) -> Usage:
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(
        input=max((usage.get("input_tokens") or 0) - cached, 0),
        output=usage.get("output_tokens") or 0,
        reasoning=(usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
        cache_read=cached,
    )
