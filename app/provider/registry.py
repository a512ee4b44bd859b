"""The adapter for a model, created on first use and cached."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from app.provider import npm
from app.provider.base import Ask, Provider
from app.provider.calls import MAX_ANSWER_BYTES, bounded, metered, observed
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


@dataclass(eq=False)
class Connection:
    """A provider with what each of its calls passes. One is another's equal only if it is the same."""

    stream: Ask
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
        """`account`: of the user whose calls these are."""
        self._observer = observer
        self._max_part_bytes = max_part_bytes
        self._infos = infos
        self._account = account
        self._scripted = scripted or shared_scripted
        self._connections: dict[tuple[str, Adapter, str], Connection] = {}

    def provider_for(self, model: Model) -> Connection:
        key = (model.provider_id, adapter_of(model), model.api.url)
        if key not in self._connections:
            self._connections[key] = self._connect(model)
        return self._connections[key]

    async def load(self, models: Iterable[Model]) -> None:
        """Imports the SDKs that these models are asked by, in a thread, before the first request needs them."""
        for adapter in sorted({adapter_of(model) for model in models}):
            if adapter != "scripted":
                await asyncio.to_thread(_load, adapter)

    async def close(self) -> None:
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()

    def _connect(self, model: Model) -> Connection:
        adapter, ask = self._adapter(model)
        ask = partial(bounded, ask, self._max_part_bytes)
        if self._observer.watches_models:
            ask = partial(observed, ask, self._observer)
        if self._account:
            ask = partial(metered, ask, self._account.principal.name, self._account.budgets)
        return Connection(ask, adapter.close)

    def _adapter(self, model: Model) -> tuple[Provider, Ask]:
        """With a way to ask it that adapts each request to what the provider and the model accept."""
        if adapter_of(model) == "scripted":
            scripted = self._scripted()
            return scripted, scripted.stream
        info = self._infos[model.provider_id]
        adapter = _make_adapter(model, info)
        return adapter, lambda request: adapter.stream(prepare(request, info.options))


def _adapter_class(adapter: Adapter) -> Any:
    """Imports it on first use."""
    return getattr(import_module(f"app.provider.{adapter}"), _CLASS_OF[adapter])


def _load(adapter: Adapter) -> None:
    _adapter_class(adapter).load()


def _make_adapter(model: Model, info: ProviderInfo) -> Provider:
    """Options of the config take precedence over the catalogue and the key store."""
    options = info.options
    adapter: Provider = _adapter_class(adapter_of(model))(
        info.id,
        api_key=options.get("apiKey") or info.key,
        base_url=options.get("baseURL") or model.api.url or None,
        headers=dict(options.get("headers") or {}),
        options={key: value for key, value in options.items() if key not in _CONNECTION_OPTIONS},
    )
    return adapter


@cache
def shared_scripted() -> Provider:
    """One instance per process, so that the turns of a script file are played once. Raises ScriptError."""
    from app.provider.scripted.adapter import load_script
    from app.provider.scripted.rules import rules_provider

    script = os.environ.get("OPENSESSION_SCRIPT")
    return rules_provider(load_script(Path(script)) if script else None)
