"""What a directory offers, told by both APIs; how a request of the second one names its directory."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from every_route import api_routes
from git_files import put_file
from route_roles import operation_of
from running_app import RunningApp, make_workspace, running_app

KEY = "sk-marked-secret-0123456789"
CONNECT = "/api/integration/anthropic/connect"
REVIEWER = {
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
LONG_CONTEXT = {"input": 6, "output": 22.5}
BIG = {
    "name": "Big",
    "release_date": "2025-09-29",
    "limit": {"context": 1000, "output": 100},
    "modalities": {"input": ["text", "image"], "output": ["text"]},
    "cost": {"input": 3, "output": 15, "cache_read": 0.3, "context_over_200k": LONG_CONTEXT},
    "headers": {"x-api-key": KEY},
    "variants": {"high": {"reasoningEffort": "high"}},
}
GREET = {"template": "Say $ARGUMENTS", "agent": "plan", "model": "local/big", "variant": "high", "subtask": True}
OPENCODES = """
v2.agent.list v2.command.list v2.credential.remove v2.credential.update v2.event.subscribe v2.fs.find v2.fs.list
v2.fs.read v2.health.get v2.integration.attempt.cancel v2.integration.attempt.complete v2.integration.attempt.status
v2.integration.connect.key v2.integration.connect.oauth v2.integration.get v2.integration.list v2.location.get
v2.model.list v2.permission.request.list v2.permission.saved.list v2.permission.saved.remove v2.provider.get
v2.provider.list v2.pty.connect v2.pty.connectToken v2.pty.create v2.pty.get v2.pty.list v2.pty.remove v2.pty.update
v2.question.request.list v2.reference.list v2.session.active v2.session.compact v2.session.context v2.session.create
v2.session.events v2.session.get v2.session.history v2.session.interrupt v2.session.list v2.session.message
v2.session.messages v2.session.permission.create v2.session.permission.get v2.session.permission.list
v2.session.permission.reply v2.session.prompt v2.session.question.list v2.session.question.reject
v2.session.question.reply v2.session.revert.clear v2.session.revert.commit v2.session.revert.stage
v2.session.switchAgent v2.session.switchModel v2.session.wait v2.skill.list
"""
"""The operations of `/api/` in the description of 1.18.33."""


@pytest.fixture
async def offering(tmp_path: Path) -> AsyncIterator[RunningApp]:
    directory = make_workspace(tmp_path / "workspace")
    options = {"baseURL": "http://127.0.0.1:1/v1", "apiKey": KEY}
    local = {"npm": "@ai-sdk/openai-compatible", "name": "Local", "options": options}
    config = {
        "model": "local/big",
        "agent": {"reviewer": REVIEWER},
        "command": {"greet": GREET},
        "provider": {"local": {**local, "models": {"big": BIG, "free": {"name": "Free"}}}},
    }
    (directory / "opencode.json").write_text(json.dumps(config))
    for file, text in {
        "skill/greeting/SKILL.md": "---\nname: greeting\ndescription: How to greet\n---\nSay hello.",
        "agent/helper.md": "---\ndescription: helps\nmode: subagent\n---\nYou help.",
        "command/wave.md": "---\ndescription: waves\n---\nWave to $1.",
    }.items():
        put_file(directory / ".opencode" / file, text)
    async with running_app(tmp_path, workspace=directory) as running:
        yield running


async def located(app: RunningApp, path: str) -> Any:
    """The data of an answer, which names the server's own directory."""
    answer = await app.get(f"/api/{path}")
    assert answer.keys() == {"location", "data"}
    assert answer["location"] == await app.get("/api/location")
    return answer["data"]


async def named(app: RunningApp, path: str, name: str) -> dict[str, Any]:
    [found] = [each for each in await located(app, path) if name in (each.get("id"), each.get("name"))]
    return found


async def test_agents_commands_and_skills(offering: RunningApp) -> None:
    model = {"id": "big", "providerID": "local", "variant": "high"}
    agent = await named(offering, "agent", "reviewer")
    assert {"action": "bash", "resource": "*", "effect": "ask"} in agent.pop("permissions")
    assert agent == {
        "id": "reviewer",
        "model": model,
        "request": {"headers": {}, "body": {"temperature": 0.3, "topP": 0.5}},
        "system": "Be strict.",
        "hidden": False,
        **{key: REVIEWER[key] for key in ("description", "mode", "color", "steps")},
    }
    assert (await named(offering, "agent", "title"))["hidden"] is True
    agents = {each["name"]: each for each in await offering.get("/agent")}
    assert {"build", "plan", "general", "reviewer"} <= agents.keys()
    assert (agents["helper"]["mode"], agents["helper"]["prompt"]) == ("subagent", "You help.")
    expected = {"name": "greet", "template": "Say $ARGUMENTS", "agent": "plan", "model": model, "subtask": True}
    assert await named(offering, "command", "greet") == expected
    commands = {each["name"]: each for each in await offering.get("/command")}
    assert {"init", "greet"} <= commands.keys()
    assert [commands["wave"][key] for key in ("description", "source", "template")] == ["waves", "command", "Wave to $1."]
    [skill] = await offering.get("/skill")
    location = f"{offering.directory}/.opencode/skill/greeting/SKILL.md"
    assert skill == {"name": "greeting", "description": "How to greet", "location": location, "content": "Say hello."}
    assert (await named(offering, "skill", "greeting")).items() >= skill.items()
    assert await located(offering, "reference") == []


async def test_models_and_providers(offering: RunningApp) -> None:
    model = await named(offering, "model", "big")
    api, request = model.pop("api"), model.pop("request")
    assert (api["id"], api["type"], api["package"]) == ("big", "aisdk", "@ai-sdk/openai-compatible")
    assert (api["url"], request["headers"].keys()) == ("http://127.0.0.1:1/v1", {"x-api-key"})
    assert model == {
        "id": "big",
        "providerID": "local",
        "name": "Big",
        "capabilities": {"tools": True, "input": ["text", "image"], "output": ["text"]},
        "variants": [{"id": "high", "headers": {}, "body": {"reasoningEffort": "high"}}],
        "time": {"released": 1759104000000},
        "cost": [
            {"input": 3, "output": 15, "cache": {"read": 0.3, "write": 0}},
            {"tier": {"type": "context", "size": 200000}, **LONG_CONTEXT, "cache": {"read": 0, "write": 0}},
        ],
        "status": "active",
        "enabled": True,
        "limit": BIG["limit"],
    }
    assert (await named(offering, "model", "free"))["cost"] == []
    provider = await named(offering, "provider", "local")
    assert (provider["name"], provider["api"]["package"]) == ("Local", "@ai-sdk/openai-compatible")
    assert provider["request"] == {"headers": {}, "body": {}}
    assert "integrationID" not in provider, "no key of it can be stored by its name"
    assert await located(offering, "provider/local") == provider
    for path in ("model", "provider", "provider/local", "agent"):
        assert KEY not in (await offering.client.get(f"/api/{path}")).text


# Keys, which the first API's routes store and remove too.


async def anthropic(app: RunningApp) -> Any:
    answer = (await app.get("/api/integration/anthropic"))["data"]
    assert answer in (await app.get("/api/integration"))["data"]
    return answer


async def test_a_provider_is_connected_by_a_key_or_a_variable(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = [{"type": "key", "label": "API key"}, {"type": "env", "names": ["ANTHROPIC_API_KEY"]}]
    assert await anthropic(app) == {"id": "anthropic", "name": "Anthropic", "methods": methods, "connections": []}
    await app.post(f"{CONNECT}/key", {"key": KEY, "label": "mine"}, expect=204)
    assert (await anthropic(app))["connections"] == [{"type": "credential", "id": "anthropic", "label": "mine"}]
    assert "anthropic" in [provider["id"] for provider in (await app.get("/api/provider"))["data"]]
    await app.call("PATCH", "/api/credential/anthropic", {"label": "yours"}, expect=204)
    assert (await anthropic(app))["connections"][0]["label"] == "yours"
    assert app.services.auth.get("anthropic").key == KEY
    await app.call("DELETE", "/api/credential/anthropic", expect=204)
    assert (await anthropic(app))["connections"] == []
    await app.call("PUT", "/auth/anthropic", {"type": "api", "key": KEY})
    assert (await anthropic(app))["connections"] == [{"type": "credential", "id": "anthropic", "label": "API key"}]
    assert KEY not in (await app.client.get("/api/integration")).text
    await app.call("DELETE", "/auth/anthropic")
    for method, path, body in (
        ("DELETE", "credential", None),
        ("PATCH", "credential", {"label": "x"}),
        ("DELETE", "integration/attempt", None),
    ):
        await app.call(method, f"/api/{path}/none", body, expect=204)
    assert (await app.get("/api/integration/none"))["data"] is None and app.services.auth.all() == {}
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert (await anthropic(app))["connections"] == [{"type": "env", "name": "ANTHROPIC_API_KEY"}]


async def test_a_members_key_is_theirs(app: RunningApp, anna: RunningApp, bert: RunningApp) -> None:
    await anna.post(f"{CONNECT}/key", {"key": KEY}, expect=204)
    assert (await anthropic(bert))["connections"] == []
    await bert.call("DELETE", "/api/credential/anthropic", expect=204)
    assert len((await anthropic(anna))["connections"]) == 1
    assert app.services.auth.all() == {}


# Places.


async def test_the_query_names_a_directory_else_the_header_else_it_is_the_servers_own(app: RunningApp) -> None:
    project = await app.get("/project/current")
    own = {"directory": str(app.directory), "project": {"id": project["id"], "directory": project["worktree"]}}
    assert await app.get("/api/location") == own
    below = app.directory / "below é"
    below.mkdir()
    header, query = "x-opencode-directory", {"location[directory]": str(below)}
    moved = {"location[directory]": quote(str(below), safe="")}  # by OpenCode's SDK, from the header
    for asked in (
        {"params": query},
        {"params": moved},
        {"headers": {header: quote(str(below))}},
        {"headers": {header: "/"}, "params": query},
    ):
        assert await app.get("/api/location", **asked) == {**own, "directory": str(below)}, asked
    outside = await app.get("/api/location", params={"location[directory]": "/"}, expect=403)
    assert outside == {"_tag": "ForbiddenError", "message": outside["message"]} and "OPENSESSION_ROOTS" in outside["message"]


async def test_it_has_every_route_that_opencodes_has(app: RunningApp) -> None:
    """All or none: a client that finds its health uses the rest."""
    assert await app.get("/api/health") == {"healthy": True}
    described = {operation_of(route) for route in api_routes(app.fastapi)}
    assert set(OPENCODES.split()) - described == set()
