"""The connection to a model's provider: its adapter, created on first use, behind a user's budget and the observers."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, assert_never

from app.events.telemetry.observer import NOBODY, ModelCallEnd, ModelCallRecord, ModelContents, Observer
from app.providers.answers import MAX_ANSWER_BYTES
from app.providers.base import (
    ApiFailure,
    Block,
    BlockDelta,
    FileBlock,
    Finish,
    ModelRequest,
    NoAddress,
    Npm,
    Provider,
    ReasoningBlock,
    SendRequest,
    StreamEvent,
    StreamStart,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)
from app.providers.catalogue import tokens_and_cost
from app.providers.estimate import estimate, estimate_request
from app.providers.options import present
from app.providers.transform import prepare
from app.schema.model import Model, ProviderInfo
from app.users.accounts import Budgets, BudgetUsedUp, ModelAccount

# Around each call.


MessagePart = dict[str, Any]


async def metered(send: SendRequest, name: str, budgets: Budgets, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """Raises ApiFailure with status 402 if the budget of the user `name` is used up. A call that breaks off after the answer has
    begun is counted by an estimate: who aborts each call just before its end would pay for none. So is one whose provider reports
    no usage."""
    try:
        await budgets.require(name)
    except BudgetUsedUp as used_up:
        raise ApiFailure(str(used_up), status=402) from None
    used: Usage | None = Usage()  # nothing before the answer begins; None, for unknown, from then until its end
    answered = ""
    try:
        async with aclosing(send(request)) as events:
            async for event in events:
                used = event.usage if isinstance(event, Finish) and event.usage != Usage() else None
                if isinstance(event, BlockDelta):
                    answered += event.text
                elif isinstance(event, ToolCall):
                    answered += str(event.input)
                yield event
    finally:
        used = used or Usage(input=estimate_request(request), output=estimate(answered))
        tokens, cost = tokens_and_cost(used, request.model.cost)
        if total := tokens.input + tokens.output + tokens.cache.read + tokens.cache.write:
            await budgets.add(name, cost, total)


async def observed(send: SendRequest, observer: Observer, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    record = _record(request, with_contents=observer.captures_contents)
    with observer.model_call(record):
        headers = {**request.headers, **record.headers}
        try:
            async with aclosing(send(replace(request, headers=headers))) as events:
                async for event in events:
                    _note(record, event, request)
                    yield event
        except Exception as failure:
            status = failure.status if isinstance(failure, ApiFailure) else None
            record.end, record.error = ModelCallEnd.FAILED, str(status) if status else type(failure).__name__
            raise
        if record.finish is None:
            record.end = ModelCallEnd.CUT_SHORT


def _record(request: ModelRequest, *, with_contents: bool) -> ModelCallRecord:
    given = present(
        temperature=request.temperature, top_p=request.top_p, top_k=request.top_k, max_tokens=request.max_output_tokens
    )
    contents = contents_of(request) if with_contents else None
    return ModelCallRecord(request.session_id, request.model.provider_id, request.model.id, given, contents)


def _note(record: ModelCallRecord, event: StreamEvent, request: ModelRequest) -> None:
    if record.first_chunk is None and not isinstance(event, StreamStart):
        record.first_chunk = time.perf_counter()
    if isinstance(event, Finish):
        record.finish, record.end = event.reason, ModelCallEnd.ANSWERED
        record.tokens, record.cost = tokens_and_cost(event.usage, request.model.cost)
    elif record.contents is not None:
        add_output(record.contents.outputs, event)


def contents_of(request: ModelRequest) -> ModelContents:
    system = [{"type": "text", "content": text} for text in request.system]
    inputs = [{"role": message.role, "parts": [_part(block) for block in message.content]} for message in request.messages]
    return ModelContents(system, inputs)


def add_output(parts: list[MessagePart], event: StreamEvent) -> None:
    match event:
        case BlockDelta(kind=kind, text=text):
            if parts and parts[-1]["type"] == kind:
                parts[-1]["content"] += text
            else:
                parts.append({"type": kind, "content": text})
        case ToolCall():
            parts.append(_call(event.call_id, event.tool, event.input))


def _part(block: Block) -> MessagePart:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ReasoningBlock():
            return {"type": "reasoning", "content": block.text}
        case FileBlock():
            return {"type": "file", "mime_type": block.mime, "name": block.filename}
        case ToolCallBlock():
            return _call(block.call_id, block.tool, block.input)
        case ToolResultBlock():
            return {"type": "tool_call_response", "id": block.call_id, "response": block.text}
        case _:
            assert_never(block)


def _call(call_id: str, tool: str, arguments: dict[str, Any]) -> MessagePart:
    return {"type": "tool_call", "id": call_id, "name": tool, "arguments": arguments}


# The adapters.


AdapterName = Literal["openai_chat", "openai_responses", "anthropic_messages", "scripted"]

_NAMES: dict[str, AdapterName] = {Npm.OPENAI: "openai_responses", Npm.ANTHROPIC: "anthropic_messages", Npm.SCRIPTED: "scripted"}
_CLASSES = {"openai_chat": "OpenAIChat", "openai_responses": "OpenAIResponses", "anthropic_messages": "Anthropic"}
_CONNECTION_OPTIONS = ("apiKey", "baseURL", "headers")


def adapter_name(model: Model) -> AdapterName:
    """Any other npm package means OpenAI's Chat Completions API."""
    return _NAMES.get(model.api.npm, "openai_chat")


@dataclass(eq=False)
class ProviderConnection:
    """A provider whose calls are metered and observed. Equal only if it is the same."""

    stream: SendRequest
    close: Callable[[], Coroutine[Any, Any, None]]


class Providers:
    """The providers of one instance. `scripted` creates the scripted provider."""

    def __init__(
        self,
        infos: Mapping[str, ProviderInfo],
        *,
        scripted: Callable[[], Provider] | None = None,
        account: ModelAccount | None = None,
        observer: Observer = NOBODY,
        max_part_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`account`: of the user who makes the calls."""
        self._observer = observer
        self._max_part_bytes = max_part_bytes
        self._infos = infos
        self._account = account
        self._scripted = scripted or shared_scripted
        self._connections: dict[tuple[str, AdapterName, str], ProviderConnection] = {}

    def connection_for(self, model: Model) -> ProviderConnection:
        """Raises NoAddress."""
        key = (model.provider_id, adapter_name(model), model.api.url)
        if key not in self._connections:
            adapter, send = self._adapter(model)
            if self._observer.watches_models:
                send = partial(observed, send, self._observer)
            if self._account:
                send = partial(metered, send, self._account.principal.name, self._account.budgets)
            self._connections[key] = ProviderConnection(send, adapter.close)
        return self._connections[key]

    async def load(self, models: Iterable[Model]) -> None:
        """Imports the SDKs for these models, in a thread, before the first request needs them."""
        for adapter in sorted({adapter_name(model) for model in models} - {"scripted"}):
            await asyncio.to_thread(_load, adapter)

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()

    def _adapter(self, model: Model) -> tuple[Provider, SendRequest]:
        """The provider, and a function that sends it requests, adapted to what it and the model accept. Raises NoAddress."""
        if adapter_name(model) == "scripted":
            scripted = self._scripted()
            return scripted, scripted.stream
        info = self._infos[model.provider_id]
        options = info.options  # of the config: they take precedence over the catalogue and the key store
        address = options.get("baseURL") or model.api.url or None
        if address is None and adapter_name(model) == "openai_chat":
            raise NoAddress(info.id)  # the adapter would send the key and the conversation to OpenAI
        adapter: Provider = _adapter_class(adapter_name(model))(
            info.id,
            api_key=options.get("apiKey") or info.key,
            base_url=address,
            headers=dict(options.get("headers") or {}),
            options={key: value for key, value in options.items() if key not in _CONNECTION_OPTIONS},
            most_bytes=self._max_part_bytes,
        )
        return adapter, lambda request: adapter.stream(prepare(request, info.options))


def _adapter_class(adapter: AdapterName) -> Any:
    """Imports the class on first use."""
    return getattr(import_module(f"app.providers.{adapter}"), _CLASSES[adapter])


def _load(adapter: AdapterName) -> None:
    _adapter_class(adapter).load()


@cache
def shared_scripted() -> Provider:
    """One instance per process, so that the turns of a script file are played once. Raises ScriptError."""
    from app.providers.scripted import load_script
    from app.providers.scripted_rules import rules_provider

    script = os.environ.get("OPENSESSION_SCRIPT")
    return rules_provider(load_script(Path(script)) if script else None)
