"""The second API: what a directory offers, told as OpenCode 1.18 tells it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, make_workspace, running_app

SECRET = "sk-marked-secret-0123456789"
LONG_CONTEXT = {"input": 6, "output": 22.5, "cache": {"read": 0, "write": 0}}
CONFIG = {
    "model": "local/big",
    "agent": {
        "reviewer": {
            "description": "Reads",
            "mode": "subagent",
            "model": "local/big",
            "variant": "high",
            "temperature": 0.3,
            "top_p": 0.5,
            "color": "#112233",
            "steps": 5,
            "prompt": "Be strict.",
            "permission": {"bash": "ask"},
        }
    },
    "command": {
        "greet": {"template": "Say $ARGUMENTS", "agent": "plan", "model": "local/big", "variant": "high", "subtask": True}
    },
    "provider": {
        "local": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Local",
            "options": {"baseURL": "http://127.0.0.1:1/v1", "apiKey": SECRET},
            "models": {
                "big": {
                    "name": "Big",
                    "release_date": "2025-09-29",
                    "limit": {"context": 1000, "output": 100},
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                    "cost": {"input": 3, "output": 15, "cache_read": 0.3, "context_over_200k": {"input": 6, "output": 22.5}},
                    "headers": {"x-api-key": SECRET},
                    "variants": {"high": {"reasoningEffort": "high"}},
                },
                "free": {"name": "Free"},
            },
        }
    },
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    directory = make_workspace(tmp_path / "workspace")
    (directory / "opencode.json").write_text(json.dumps(CONFIG))
    skill = directory / ".opencode" / "skill" / "greeting" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greeting\ndescription: How to greet\n---\nSay hello.\n")
    async with running_app(tmp_path, workspace=directory) as running:
        yield running


async def located(app: RunningApp, path: str, **query: Any) -> Any:
    """The data of an answer, which names the server's own directory."""
    answer = await app.get(f"/api/{path}", params=query)
    assert answer.keys() == {"location", "data"}
    assert answer["location"] == await app.get("/api/location")
    return answer["data"]


async def named(app: RunningApp, path: str, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in await located(app, path) if name in (each.get("id"), each.get("name"))]
    assert len(found) == 1
    return found[0]


async def test_an_agent(app: RunningApp) -> None:
    agent = await named(app, "agent", "reviewer")
    permissions = agent.pop("permissions")
    assert {"action": "bash", "resource": "*", "effect": "ask"} in permissions
    assert agent == {
        "id": "reviewer",
        "model": {"id": "big", "providerID": "local", "variant": "high"},
        "request": {"headers": {}, "body": {"temperature": 0.3, "topP": 0.5}},
        "system": "Be strict.",
        "description": "Reads",
        "mode": "subagent",
        "hidden": False,
        "color": "#112233",
        "steps": 5,
    }
    assert (await named(app, "agent", "title"))["hidden"] is True


async def test_a_command_and_a_skill_with_its_text_and_no_references(app: RunningApp) -> None:
    expected = {
        "name": "greet",
        "template": "Say $ARGUMENTS",
        "agent": "plan",
        "model": {"id": "big", "providerID": "local", "variant": "high"},
        "subtask": True,
    }
    assert await named(app, "command", "greet") == expected
    skill = await named(app, "skill", "greeting")
    assert skill["location"].endswith("/greeting/SKILL.md")
    assert (skill["description"], skill["content"].strip()) == ("How to greet", "Say hello.")
    assert await located(app, "reference") == []


async def test_a_model(app: RunningApp) -> None:
    model = await named(app, "model", "big")
    api, request = model.pop("api"), model.pop("request")
    assert (api["id"], api["type"], api["package"]) == ("big", "aisdk", "@ai-sdk/openai-compatible")
    assert api["url"] == "http://127.0.0.1:1/v1"
    assert request["headers"].keys() == {"x-api-key"}
    assert model == {
        "id": "big",
        "providerID": "local",
        "name": "Big",
        "capabilities": {"tools": True, "input": ["text", "image"], "output": ["text"]},
        "variants": [{"id": "high", "headers": {}, "body": {"reasoningEffort": "high"}}],
        "time": {"released": 1759104000000},
        "cost": [
            {"input": 3, "output": 15, "cache": {"read": 0.3, "write": 0}},
            {"tier": {"type": "context", "size": 200000}, **LONG_CONTEXT},
        ],
        "status": "active",
        "enabled": True,
        "limit": {"context": 1000, "output": 100},
    }
    assert (await named(app, "model", "free"))["cost"] == []


async def test_a_provider(app: RunningApp) -> None:
    provider = await named(app, "provider", "local")
    assert (provider["name"], provider["api"]["package"]) == ("Local", "@ai-sdk/openai-compatible")
    assert provider["request"] == {"headers": {}, "body": {}}
    assert "integrationID" not in provider, "no key of it can be stored by its name"
    assert await located(app, "provider/local") == provider
    for path in ("model", "provider", "provider/local", "agent"):
        assert SECRET not in (await app.client.get(f"/api/{path}")).text
