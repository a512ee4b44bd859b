"""The script that makes the list of models."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.providers.catalogue import Catalogue

SCRIPT = Path(__file__).parents[3] / "scripts/refresh_models.py"
CHAT: dict[str, Any] = {
    "id": "chat",
    "name": "Chat",
    "description": "Talks",
    "tool_call": True,
    "reasoning": False,
    "modalities": {"input": ["text"], "output": ["text"]},
    "limit": {"context": 1000, "output": 100},
    "cost": {"input": 1, "output": 2, "input_audio": 9, "context_over_200k": {"input": 2, "output": 4}},
}
OTHERS = (
    {"id": "embeds", "tool_call": False, "cost": {"input": 1, "output": 0}},
    {"id": "paints", "modalities": {"input": ["text"], "output": ["image"]}},
    {"id": "speaks-as-google", "provider": {"npm": "@ai-sdk/google"}},
)


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh_models", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_list_of_chat_models_with_its_date(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"chat": CHAT} | {other["id"]: {**CHAT, **other} for other in OTHERS}
    found = {
        id_: {"id": id_, "name": id_.title(), "env": ["KEY"], "npm": "x", "api": "http://x", "models": models}
        for id_ in script.PROVIDERS
    }
    (tmp_path / "api.json").write_text(json.dumps(found))
    monkeypatch.setattr(script, "TARGET", tmp_path / "models.jsonl")
    script.main(str(tmp_path / "api.json"), "2026-01-31")
    made = Catalogue(tmp_path / "models.jsonl")
    assert json.loads((tmp_path / "models.jsonl").open().readline())["date"] == "2026-01-31"
    assert list(made.providers) == list(script.PROVIDERS)
    kept = {name: CHAT[name] for name in ("id", "name", "tool_call", "modalities", "limit")}
    assert made.entries("openai") == {"chat": {"of": "openai", **kept, "cost": {"input": 1, "output": 2}}}
