"""OpenAI's Responses API."""

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, assert_never

import orjson

from app.providers.answers import Blocks, read_call
from app.providers.base import (
    AssistantTurn,
    Finish,
    FinishReason,
    Metadata,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    StreamEvent,
    TextBlock,
    ToolCallBlock,
    ToolInputStart,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UnusableOption,
    Usage,
    UserBlock,
    UserTurn,
)
from app.providers.errors import in_stream
from app.providers.options import present, renamed
from app.providers.sdk_adapter import Headers, OpenAIAdapter, Payload, sdk_parameters

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content-filter"}


class ResponsesReader:
    """Streams one text block per item and one reasoning block per summary. Emits a call when its item is complete."""

    def __init__(self) -> None:
        self.finished = False
        self._blocks = Blocks()
        self._called = False
        self._summary: dict[str, str] = {}
        self._finish: Finish | None = None

    def read(self, payload: Payload) -> list[StreamEvent]:
        match payload.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._blocks.delta("text", str(payload["item_id"]), payload.get("delta") or "")
            case "response.reasoning_summary_part.added":
                return self._start_summary(str(payload["item_id"]), payload.get("summary_index", 0))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._blocks.delta("reasoning", self._block_of(str(payload["item_id"])), payload.get("delta") or "")
            case "response.output_item.added":
                return self._item_added(payload.get("item") or {})
            case "response.output_item.done":
                return self._item_done(payload.get("item") or {})
            case "response.completed" | "response.incomplete":
                self._complete(payload.get("response") or {})
            case "response.failed" | "error":
                response = payload.get("response")
                raise in_stream({"error": response.get("error")} if response else payload)
            case None if payload.get("error"):
                raise in_stream(payload)
        return []

    def end(self) -> list[StreamEvent]:
        events = self._blocks.end_all()
        return events if self._finish is None else [*events, self._finish]

    def _block_of(self, item_id: str) -> str:
        return self._summary.get(item_id, f"{item_id}:0")

    def _start_summary(self, item_id: str, index: int) -> list[StreamEvent]:
        """The item has started the first summary; each further one ends its predecessor."""
        block_id = f"{item_id}:{index}"
        before = self._summary.get(item_id)
        self._summary[item_id] = block_id
        ended = self._blocks.end(before, _metadata(item_id)) if before is not None and before != block_id else []
        return [*ended, *self._blocks.start("reasoning", block_id, _metadata(item_id))]

    def _item_added(self, item: Payload) -> list[StreamEvent]:
        match item.get("type"):
            case "function_call":
                self._called = True
                return [ToolInputStart(item["call_id"], item["name"])]
            case "reasoning":
                return self._start_summary(str(item["id"]), 0)
            case _:
                return []

    def _item_done(self, item: Payload) -> list[StreamEvent]:
        item_id = str(item.get("id"))
        match item.get("type"):
            case "function_call":
                self._called = True
                return [read_call(item["call_id"], item["name"], item.get("arguments") or "", _metadata(item.get("id")))]
            case "reasoning":
                sealed = _metadata(item_id, item.get("encrypted_content"))
                return self._blocks.end(self._block_of(item_id), sealed)
            case "message":
                return self._blocks.end(item_id, _metadata(item_id))
            case _:
                return []

    def _complete(self, response: Payload) -> None:
        reason: FinishReason = "tool-calls" if self._called else "stop"
        if response.get("status") == "incomplete":
            cause = (response.get("incomplete_details") or {}).get("reason")
            reason = _INCOMPLETE.get(str(cause), "unknown")
        self._finish = Finish(reason, _usage(response.get("usage") or {}))
        self.finished = True


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


METADATA_KEY = "openai"
_ENCRYPTED = "reasoning.encrypted_content"
_OPTION_NAMES = {
    "promptCacheKey": "prompt_cache_key",
    "promptCacheRetention": "prompt_cache_retention",
    "parallelToolCalls": "parallel_tool_calls",
    "maxToolCalls": "max_tool_calls",
    "serviceTier": "service_tier",
    "safetyIdentifier": "safety_identifier",
    "previousResponseId": "previous_response_id",
}
_NESTED = ("reasoningEffort", "reasoningSummary", "textVerbosity", "store", "include")


def responses_body(request: ModelRequest) -> Payload:
    """No option may change the model, by which a call's cost is computed."""
    options = request.options
    store = bool(options.get("store"))
    role = "developer" if request.model.capabilities.reasoning else "system"
    instructions = [{"role": role, "content": text} for text in request.system_in_one]
    return {
        "store": store,
        **present(temperature=request.temperature, top_p=request.top_p, max_output_tokens=request.max_output_tokens),
        **present(tools=[_tool(tool) for tool in request.tools] or None, include=_include(request, store) or None),
        **present(tool_choice="required" if request.requires_tool else None),
        **present(reasoning=present(effort=options.get("reasoningEffort"), summary=options.get("reasoningSummary")) or None),
        **present(text=present(verbosity=options.get("textVerbosity")) or None),
        **renamed(options, _OPTION_NAMES, _NESTED),
        "model": request.model.api.id,
        "input": [*instructions, *(item for turn in request.messages for item in _turn_items(turn, store))],
        "stream": True,
    }


def _include(request: ModelRequest, store: bool) -> list[str]:
    """Asks for encrypted reasoning if the API does not store it. Models without reasoning reject this option. Raises
    UnusableOption."""
    asked = request.options.get("include")
    if not isinstance(asked, list | None):
        raise UnusableOption("include", "a list", asked)
    asked = asked or []
    wanted = not store and request.model.capabilities.reasoning and _ENCRYPTED not in asked
    return [*asked, _ENCRYPTED] if wanted else asked


def _tool(tool: ToolSpec) -> Payload:
    return {
        "type": "function",
        "name": tool.id,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _turn_items(turn: ModelMessage, store: bool) -> list[Payload]:
    match turn:
        case UserTurn(content):
            return [{"role": "user", "content": [_part(block) for block in content]}] if content else []
        case AssistantTurn():
            return _assistant_items(turn, store)
        case ToolTurn(content):
            return [_output(result) for result in content]
        case _:
            assert_never(turn)


def _assistant_items(turn: AssistantTurn, store: bool) -> list[Payload]:
    items: list[Payload] = []
    for block in turn.content:
        match block:
            case TextBlock(text):
                if text:
                    content = [{"type": "output_text", "text": text}]
                    items.append({"role": "assistant", "content": content, **_item_id(block.metadata)})
            case ReasoningBlock():
                _add_reasoning(items, block, store)
            case ToolCallBlock():
                items.append(_call(block))
            case _:
                assert_never(block)
    if store:
        return items
    # The API rejects reasoning that is neither stored nor encrypted. Proxies look in vain for an item with an id: none is stored.
    kept = (item for item in items if item.get("type") != "reasoning" or "encrypted_content" in item)
    return [{key: value for key, value in item.items() if key != "id"} for item in kept]


def _facts(metadata: Metadata | None) -> Payload:
    facts = (metadata or {}).get(METADATA_KEY)
    return facts if isinstance(facts, dict) else {}


def _item_id(metadata: Metadata | None) -> Payload:
    return present(id=_facts(metadata).get("itemId"))


def _call(block: ToolCallBlock) -> Payload:
    arguments = orjson.dumps(block.input).decode()
    call = {"type": "function_call", "call_id": block.call_id, "name": block.tool, "arguments": arguments}
    return {**call, **_item_id(block.metadata)}


def _add_reasoning(items: list[Payload], block: ReasoningBlock, store: bool) -> None:
    """Merges the blocks of one item, which has a block per summary. Leaves out reasoning of other providers."""
    facts = _facts(block.metadata)
    item_id, encrypted = facts.get("itemId"), facts.get("reasoningEncryptedContent")
    if item_id is None:
        return
    known = next((item for item in items if item.get("type") in ("reasoning", "item_reference") and item["id"] == item_id), None)
    if known is None:
        known = {"type": "item_reference", "id": item_id} if store else {"type": "reasoning", "id": item_id, "summary": []}
        items.append(known)
    if store:
        return
    known["summary"] += [{"type": "summary_text", "text": block.text}] if block.text else []
    known.update(present(encrypted_content=encrypted))


def _output(result: ToolResultBlock) -> Payload:
    output: str | list[Payload] = result.text
    if result.files:
        output = [*([{"type": "input_text", "text": result.text}] if result.text else []), *map(_part, result.files)]
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _part(block: UserBlock) -> Payload:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    match block.medium:
        case "image":
            return {"type": "input_image", "image_url": block.url}
        case "pdf" if block.inline is not None:
            return {"type": "input_file", "filename": block.filename or "document.pdf", "file_data": block.url}
        case "pdf":
            return {"type": "input_file", "file_url": block.url}
        case _:
            return {"type": "input_text", "text": block.unsendable}


class OpenAIResponses(OpenAIAdapter):
    path = "/responses"
    sdk = "openai.resources.responses.responses"
    reader = ResponsesReader

    def _send(self, client: "AsyncOpenAI", request: ModelRequest, headers: Headers) -> AbstractAsyncContextManager[Any]:
        from openai import omit

        body = responses_body(request)
        return client.responses.with_streaming_response.create(stream=True, **sdk_parameters(body, headers, omit))
