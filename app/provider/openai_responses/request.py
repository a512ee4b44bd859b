"""A ModelRequest as the body of POST /responses."""

from typing import Any, assert_never

import orjson

from app.provider.base import (
    AssistantTurn,
    FileBlock,
    Metadata,
    ModelMessage,
    ModelRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from app.provider.wire.files import inline, medium_of, unsendable
from app.provider.wire.options import list_option, present, renamed

Json = dict[str, Any]

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


def responses_body(request: ModelRequest) -> Json:
    """No option is another model: what a call costs is counted by this one."""
    options = request.options
    store = bool(options.get("store"))
    return {
        "store": store,
        **present(temperature=request.temperature, top_p=request.top_p, max_output_tokens=request.max_output_tokens),
        **present(tools=[_tool(tool) for tool in request.tools] or None, include=_include(request, store) or None),
        **present(tool_choice="required" if request.requires_tool else None),
        **present(reasoning=present(effort=options.get("reasoningEffort"), summary=options.get("reasoningSummary")) or None),
        **present(text=present(verbosity=options.get("textVerbosity")) or None),
        **renamed(options, _OPTION_NAMES, _NESTED),
        "model": request.model.api.id,
        "input": [*_instructions(request), *_items(request, store)],
        "stream": True,
    }


def _include(request: ModelRequest, store: bool) -> list[str]:
    """Asks for encrypted reasoning if the API does not store it. Models without reasoning reject this option."""
    asked: list[str] = list_option(request.options, "include")
    wanted = not store and request.model.capabilities.reasoning and _ENCRYPTED not in asked
    return [*asked, _ENCRYPTED] if wanted else asked


def _tool(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": tool.id,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _instructions(request: ModelRequest) -> list[Json]:
    role = "developer" if request.model.capabilities.reasoning else "system"
    return [{"role": role, "content": text} for text in request.system if text]


def _items(request: ModelRequest, store: bool) -> list[Json]:
    return [item for turn in request.messages for item in _turn_items(turn, store)]


def _turn_items(turn: ModelMessage, store: bool) -> list[Json]:
    match turn:
        case UserTurn(content):
            return [{"role": "user", "content": [_part(block) for block in content]}] if content else []
        case AssistantTurn():
            return _assistant_items(turn, store)
        case ToolTurn(content):
            return [_output(result) for result in content]
        case _:
            assert_never(turn)


def _assistant_items(turn: AssistantTurn, store: bool) -> list[Json]:
    items: list[Json] = []
    for block in turn.content:
        match block:
            case TextBlock():
                items += _answer_items(block, store)
            case ReasoningBlock():
                _add_reasoning(items, block, store)
            case ToolCallBlock():
                items.append(_call(block, store))
            case _:
                assert_never(block)
    return [item for item in items if not _is_lost(item)]


def _is_lost(item: Json) -> bool:
    """The API rejects reasoning that it has not stored and that is not encrypted."""
    return item.get("type") == "reasoning" and "encrypted_content" not in item


def _facts(metadata: Metadata | None) -> Json:
    facts = (metadata or {}).get(METADATA_KEY)
    return facts if isinstance(facts, dict) else {}


def _stored_id(metadata: Metadata | None, store: bool) -> Json:
    """The API knows an item's id only if it has stored the item."""
    return present(id=_facts(metadata).get("itemId") if store else None)


def _answer_items(block: TextBlock, store: bool) -> list[Json]:
    if not block.text:
        return []
    content = [{"type": "output_text", "text": block.text}]
    return [{"role": "assistant", "content": content, **_stored_id(block.metadata, store)}]


def _call(block: ToolCallBlock, store: bool) -> Json:
    arguments = orjson.dumps(block.input).decode()
    call = {"type": "function_call", "call_id": block.call_id, "name": block.tool, "arguments": arguments}
    return {**call, **_stored_id(block.metadata, store)}


def _add_reasoning(items: list[Json], block: ReasoningBlock, store: bool) -> None:
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


def _output(result: ToolResultBlock) -> Json:
    output: str | list[Json] = result.text
    if result.files:
        output = [*([{"type": "input_text", "text": result.text}] if result.text else []), *map(_part, result.files)]
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _part(block: TextBlock | FileBlock) -> Json:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    match medium_of(block):
        case "image":
            return {"type": "input_image", "image_url": block.url}
        case "pdf" if inline(block) is not None:
            return {"type": "input_file", "filename": block.filename or "document.pdf", "file_data": block.url}
        case "pdf":
            return {"type": "input_file", "file_url": block.url}
        case _:
            return {"type": "input_text", "text": unsendable(block)}
