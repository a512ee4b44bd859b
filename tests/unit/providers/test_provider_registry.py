"""Which adapter a model gets, with what, and for how long."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, ask, events_of, model, said, user

from app.providers.base import FileBlock, NoAddress, Npm
from app.providers.catalogue import scripted_info
from app.providers.registry import Providers, adapter_name
from app.providers.scripted import ScriptedProvider
from app.schema.model import Model, ProviderInfo

ROOT = Path(__file__).parents[3]


def info(*models: Model, key: str | None = None, **options: Any) -> ProviderInfo:
    return ProviderInfo(id="fake", name="P", source="config", key=key, options=options, models={one.id: one for one in models})


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
    assert adapter_name(model(npm=package)) == adapter


async def test_options_win_over_the_stored_key_and_the_listed_address(server: FakeServer) -> None:
    here = info(key="stored", apiKey="option", baseURL=server.url, headers={"X-Own": "1"})
    await events_of(Providers({"fake": here}).connection_for(model(url="http://127.0.0.1:1")))
    await events_of(Providers({"fake": info(key="stored")}).connection_for(model(url=server.url)))
    keys = [(asked.headers["authorization"], asked.headers.get("x-own")) for asked in server.received]
    assert keys == [("Bearer option", "1"), ("Bearer stored", None)]


@pytest.mark.parametrize("package", ["@ai-sdk/openai-compatible", "@ai-sdk/azure"])
def test_a_key_and_a_conversation_go_to_no_server_that_nobody_named(package: str) -> None:
    """The option is misspelt, or is that of another package."""
    providers = Providers({"fake": info(apiKey="secret", baseUrl="http://model.internal", resourceName="ours")})
    with pytest.raises(NoAddress, match=r"options\.baseURL"):
        providers.connection_for(model(npm=package))


def test_an_sdk_is_loaded_for_the_providers_that_need_it_and_for_no_list() -> None:
    """Each is asked for in a process of its own: a fork of one that has loaded none."""
    wanted = {"scripted": [], Npm.OPENAI_COMPATIBLE: ["openai"], Npm.OPENAI: ["openai"], Npm.ANTHROPIC: ["anthropic"]}
    program = f"""
import asyncio, os, sys
from app.providers import registry, selection
from app.providers.catalogue import Catalogue
from app.providers.connected import ProviderSettings, assemble
for package in {[str(package) for package in wanted]!r}:
    if os.fork() == 0:
        entry = {{"models": {{"m": {{}}}}, "npm": package, "options": {{"baseURL": "http://x"}}}}
        connected = assemble(Catalogue(), ProviderSettings(entries={{"f": entry}}), {{}}, {{}})
        selection.config_providers(connected).wire_json()
        listed = [name for name in ("openai", "anthropic", "rapidfuzz") if name in sys.modules]
        asyncio.run(registry.Providers(connected).load(list(connected["f"].models.values())))
        print(listed, [name for name in ("openai", "anthropic") if name in sys.modules])
        sys.exit()
    assert os.wait()[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"[] {loaded}" for loaded in wanted.values()]


async def test_models_of_one_endpoint_share_an_adapter_until_it_is_closed() -> None:
    providers = Providers({"fake": info(key="k", baseURL="http://x")})
    first = providers.connection_for(model("a"))
    assert providers.connection_for(model("b")) is first
    others = [providers.connection_for(model("c", npm=package)) for package in (Npm.ANTHROPIC, Npm.OPENAI)]
    assert first not in others and others[0] is not others[1]
    await providers.close()
    assert providers.connection_for(model("a")) is not first


async def test_the_scripted_provider_is_the_one_given() -> None:
    scripted, rules = ScriptedProvider([[{"text": "hi"}]]), scripted_info()
    providers = Providers({"scripted": rules}, scripted=lambda: scripted)
    assert said(await events_of(providers.connection_for(rules.models["rules"]))) == "hi" and len(scripted.requests) == 1
    assert providers.connection_for(rules.models["title"]) is providers.connection_for(rules.models["rules"])


async def test_requests_are_prepared_for_the_model(server: FakeServer) -> None:
    picture = user(FileBlock("image/png", "data:image/png;base64,AA"))
    await events_of(Providers({"fake": info()}).connection_for(model(url=server.url)), ask(messages=(picture,)))
    assert "takes no image input" in server.body["messages"][0]["content"]
