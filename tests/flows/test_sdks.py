"""The SDKs of models are loaded when a directory opens that has models of theirs, before anybody prompts."""

import threading
from pathlib import Path
from typing import Any

import pytest
from model_server import model_server
from running_app import running_app
from turns import configured

from app.provider import registry


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, threading.Thread]]:
    loads: list[tuple[str, threading.Thread]] = []
    monkeypatch.setattr(registry, "_load", lambda adapter: loads.append((adapter, threading.current_thread())))
    return loads


async def test_an_sdk_is_loaded_in_a_thread_when_its_directory_opens(tmp_path: Path, loading: Any) -> None:
    with model_server() as model:
        async with running_app(tmp_path, workspace=configured(tmp_path, model.config())) as app:
            await app.get("/config")
        assert model.requests == []
    assert [adapter for adapter, _ in loading] == ["openai_chat"]
    assert threading.main_thread() not in [thread for _, thread in loading]


async def test_none_is_loaded_where_no_model_needs_it(tmp_path: Path, loading: Any) -> None:
    async with running_app(tmp_path) as app:
        await app.get("/config")
    assert loading == []
