"""Which adapter a model gets, with what, and for how long."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, ask, events_of

from app.providers.base import FileBlock, Npm, TextDelta, UserTurn
from app.providers.catalogue import scripted_info
from app.providers.registry import Providers, adapter_of
from app.providers.scripted import ScriptedProvider
from app.schema.model import Model, ModelApi, ProviderInfo

ROOT = Path(__file__).parents[3]


def model(model_id: str = "m", package: str = Npm.OPENAI_COMPATIBLE, provider: str = "p", url: str | None = None) -> Model:
    return Model(id=model_id, provider_id=provider, api=ModelApi(id=model_id, npm=package, url=url or ""), name=model_id)


def info(*models: Model, key: str | None = None, **options: Any) -> ProviderInfo:
    return ProviderInfo(id="p", name="P", source="config", key=key, options=options, models={one.id: one for one in models})


@pytest.mark.parametrize(
    ("package", "adapter"),
    [
        ("@ai-sdk/openai-compatible", "openai_chat"),
        ("@ai-sdk/openai", "openai_responses"),
        ("@ai-sdk/anthropic", "anthropic_messages"),
        ("@ai-sdk/groq", "openai_chat"),
        ("something-else", "openai_chat"),
        ("scripted", "scripted"),
    ],
)
def test_the_package_names_the_adapter(package, adapter):
    assert adapter_of(model(package=package)) == adapter


async def test_options_win_over_the_stored_key_and_the_listed_address(server: FakeServer) -> None:
    here = info(key="stored", apiKey="option", baseURL=server.url, headers={"X-Own": "1"})
    await events_of(Providers({"p": here}).provider_for(model(url="http://127.0.0.1:1")))
    assert (server.received[-1].headers["authorization"], server.received[-1].headers["x-own"]) == ("Bearer option", "1")


async def test_without_options_the_stored_key_and_the_listed_address_are_taken(server: FakeServer) -> None:
    await events_of(Providers({"p": info(key="stored")}).provider_for(model(url=server.url)))
    assert server.received[-1].headers["authorization"] == "Bearer stored"


@pytest.mark.parametrize("package", [Npm.OPENAI_COMPATIBLE, Npm.OPENAI, Npm.ANTHROPIC])
async def test_every_adapter_can_be_made_and_closed(package):
    providers = Providers({"p": info(key="k", baseURL="http://127.0.0.1:1/v1")})
    provider = providers.provider_for(model(package=package))
    assert hasattr(provider, "stream")
    await providers.close()


@pytest.mark.parametrize(
    ("package", "loaded"),
    [
        ("scripted", []),
        ("@ai-sdk/openai-compatible", ["openai"]),
        ("@ai-sdk/openai", ["openai"]),
        ("@ai-sdk/anthropic", ["anthropic"]),
    ],
)
def test_an_sdk_is_loaded_for_the_providers_that_need_it(package, loaded):
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_provider_registry import info, model
from app.providers.registry import Providers
asyncio.run(Providers({{"p": info()}}).load([model(package={package!r})]))
print([name for name in ("openai", "anthropic") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loaded)


async def test_models_of_one_endpoint_share_an_adapter():
    providers = Providers({"p": info(key="k", baseURL="http://x")})
    first = providers.provider_for(model("a"))
    assert providers.provider_for(model("b")) is first
    assert providers.provider_for(model("c", Npm.ANTHROPIC)) is not first


async def test_after_close_adapters_are_made_anew():
    providers = Providers({"p": info(key="k", baseURL="http://x")})
    first = providers.provider_for(model())
    await providers.close()
    assert providers.provider_for(model()) is not first


async def test_the_scripted_provider_is_the_one_given():
    scripted = ScriptedProvider([[{"text": "hi"}]])
    rules = scripted_info()
    providers = Providers({"scripted": rules}, scripted=lambda: scripted)
    events = await events_of(providers.provider_for(rules.models["rules"]))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "hi"
    assert len(scripted.requests) == 1
    assert providers.provider_for(rules.models["title"]) is providers.provider_for(rules.models["rules"])


async def test_requests_are_prepared_for_the_model(server: FakeServer) -> None:
    picture = UserTurn((FileBlock("image/png", "data:image/png;base64,AA"),))
    await events_of(Providers({"p": info()}).provider_for(model(url=server.url)), ask(messages=(picture,)))
    assert "takes no image input" in server.body["messages"][0]["content"]
