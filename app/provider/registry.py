"""The adapter for a model, created on first use and cached."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import orjson

from app.provider import npm
from app.provider.base import ModelRequest, Provider, StreamEvent
from app.provider.bounded import MAX_ANSWER_BYTES, BoundedProvider
from app.provider.metered import MeteredProvider
from app.provider.observed import ObservedProvider
from app.provider.transform import prepare
from app.schema.model import Model, ProviderInfo
from app.telemetry.observer import NOBODY, Observer
from app.users.accounts import ModelAccount

Adapter = Literal["openai_chat", "openai_responses", "anthropic_messages", "scripted"]

_ADAPTER_OF: dict[str, Adapter] = {npm.OPENAI: "openai_responses", npm.ANTHROPIC: "anthropic_messages", npm.SCRIPTED: "scripted"}
_CLASS_OF = {"openai_chat": "OpenAIChat", "openai_responses": "OpenAIResponses", "anthropic_messages": "Anthropic"}
_CONNECTION_OPTIONS = ("apiKey", "baseURL", "headers")


def adapter_of(model: Model) -> Adapter:
    """Any other npm package means OpenAI's Chat Completions API."""
    return _ADAPTER_OF.get(model.api.npm, "openai_chat")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One connection; two models with equal endpoints share an adapter."""

    adapter: Adapter
    provider_id: str
    api_key: str | None
    base_url: str | None
    headers: dict[str, str]
    options: dict[str, Any]

    def key(self) -> bytes:
        facts = (self.adapter, self.provider_id, self.api_key, self.base_url, self.headers, self.options)
        return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)


def endpoint_of(model: Model, info: ProviderInfo) -> Endpoint:
    """Options of the config take precedence over the catalogue and the key store."""
    options = info.options
    return Endpoint(
        adapter=adapter_of(model),
        provider_id=info.id,
        api_key=options.get("apiKey") or info.key,
        base_url=options.get("baseURL") or model.api.url or None,
        headers=dict(options.get("headers") or {}),
        options={key: value for key, value in options.items() if key not in _CONNECTION_OPTIONS},
    )


class Prepared:
    """Adapts each request to what the provider and the model accept."""

    def __init__(self, adapter: Provider, options: Mapping[str, Any]) -> None:
        self._adapter = adapter
        self._options = options

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        return self._adapter.stream(prepare(request, self._options))

    async def close(self) -> None:
        await self._adapter.close()


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
        """`account`: of the user whose calls these are."""
        self._observer = observer
        self._max_part_bytes = max_part_bytes
        self._infos = infos
        self._account = account
        self._scripted = scripted or shared_scripted
        self._adapters: dict[bytes, Provider] = {}

    def provider_for(self, model: Model) -> Provider:
        endpoint = endpoint_of(model, self._infos[model.provider_id])
        key = endpoint.key()
        if key not in self._adapters:
            adapter, account = self._observed(BoundedProvider(self._make(endpoint), self._max_part_bytes)), self._account
            self._adapters[key] = MeteredProvider(adapter, account.principal.name, account.budgets) if account else adapter
        return self._adapters[key]

    async def load(self, models: Iterable[Model]) -> None:
        """Imports the SDKs that these models are asked by, in a thread, before the first request needs them."""
        for adapter in sorted({adapter_of(model) for model in models}):
            if adapter != "scripted":
                await asyncio.to_thread(_load, adapter)

    async def close(self) -> None:
        adapters, self._adapters = list(self._adapters.values()), {}
        for adapter in adapters:
            await adapter.close()

    def _observed(self, adapter: Provider) -> Provider:
        return ObservedProvider(adapter, self._observer) if self._observer.watches_models else adapter

    def _make(self, endpoint: Endpoint) -> Provider:
        if endpoint.adapter == "scripted":
            return self._scripted()
        return Prepared(_make_adapter(endpoint), endpoint.options)


def _adapter_class(adapter: Adapter) -> Any:
    """Imports it on first use."""
    return getattr(import_module(f"app.provider.{adapter}.adapter"), _CLASS_OF[adapter])


def _load(adapter: Adapter) -> None:
    _adapter_class(adapter).load()


def _make_adapter(endpoint: Endpoint) -> Provider:
    adapter: Provider = _adapter_class(endpoint.adapter)(
        endpoint.provider_id,
        api_key=endpoint.api_key,
        base_url=endpoint.base_url,
        headers=endpoint.headers,
        options=endpoint.options,
    )
    return adapter


@cache
def shared_scripted() -> Provider:
    """One instance per process, so that the turns of a script file are played once. Raises ScriptError."""
    from app.provider.scripted.adapter import load_script
    from app.provider.scripted.rules import rules_provider

    script = os.environ.get("OPENSESSION_SCRIPT")
    return rules_provider(load_script(Path(script)) if script else None)
