"""The SDKs of a directory's own models are loaded when it opens, before anybody prompts; the others when they are needed."""

import threading
from pathlib import Path
from typing import Any

import pytest
from model_server import model_server
from running_app import running_app
from turns import configured

from app.providers import registry


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    loads: list[tuple[str, threading.Thread]] = []
    monkeypatch.setattr(registry, "_load", lambda adapter: loads.append((adapter, threading.current_thread())))
    return loads


OTHER = {"npm": "@ai-sdk/anthropic", "options": {"baseURL": "http://127.0.0.1:9", "apiKey": "k"}, "models": {"claude-x": {}}}


@pytest.mark.parametrize(
    ("own", "loaded"),
    [
        ({}, ["openai_chat"]),
        ({"model": "other/claude-x"}, ["anthropic_messages"]),
        ({"agent": {"build": {"model": "other/claude-x"}}}, ["anthropic_messages", "openai_chat"]),
        ({"model": "other/none"}, []),
    ],
    ids=["one that nobody chose", "the default model", "an agent's model", "a model that is none"],
)
async def test_those_that_prompts_need_which_name_no_model_are_loaded_in_a_thread_when_their_directory_opens(
    tmp_path: Path, loading: Any, own: dict[str, Any], loaded: list[str]
) -> None:
    with model_server() as model:
        config = {**model.config(), **own}
        config["provider"]["other"] = OTHER
        async with running_app(tmp_path, workspace=configured(tmp_path, config)) as app:
            await app.get("/config")
        assert model.requests == []
    assert [adapter for adapter, _ in loading] == loaded
    assert threading.main_thread() not in [thread for _, thread in loading]
