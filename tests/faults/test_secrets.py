"""Secrets go in and never come out: by no route, event, error, log or file, nor to what the server runs."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from every_route import every_route
from loopback import QuietHandler, on_loopback
from running_app import RunningApp, running_app, text_part
from turns import bash, configured, say

MARK = "5eCr3T"
STREAMS = {"/event", "/global/event", "/tui/control/next", "/api/event"}
STREAMS |= {"/api/session/{sessionID}/event", "/session/{sessionID}/editor"}
LOGIN = ("opencode", f"{MARK}-server-password")


def secret(name: str) -> str:
    return f"{MARK}-{name}"


@contextmanager
def echoing_model() -> Iterator[str]:
    """A provider that refuses every request and says in its answer what it was sent, the key too."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            sent = {name: value for name, value in self.headers.items() if MARK in value}
            body = json.dumps({"error": {"message": f"Incorrect API key provided: {sent}", "headers": sent}}).encode()
            self.reply(body, status=401, x_you_sent=str(sent))

    with on_loopback(Handler) as port:
        yield f"http://127.0.0.1:{port}/v1"


def config(echo_url: str) -> dict[str, Any]:
    """Every place of a configuration that may hold a secret."""
    models = {"main": {"name": "Main", "tool_call": True, "headers": {"X-Model-Key": secret("model-header")}}}
    return {
        "model": "acme/main",
        "provider": {
            "acme": {"npm": "scripted", "models": {"main": {"name": "Main", "tool_call": True}}},
            "echo": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {
                    "baseURL": echo_url.replace("://", f"://user:{secret('url-password')}@") + f"?key={secret('query')}",
                    "apiKey": secret("config-key"),
                    "headers": {"X-Api-Key": secret("header"), "Cookie": secret("cookie"), "X-Odd": secret("odd-header")},
                },
                "models": models,
            },
            "company": {
                "npm": "@ai-sdk/openai-compatible",
                "env": ["COMPANY_LLM"],
                "options": {"baseURL": echo_url, "apiKey": "{env:COMPANY_LOGIN}"},
                "models": models,
            },
        },
        "mcp": {
            "near": {"type": "local", "command": ["false"], "environment": {"TOKEN": secret("mcp-environment")}},
            "far": {
                "type": "remote",
                "url": f"http://user:{secret('mcp-url')}@127.0.0.1:9/mcp?key={secret('mcp-query')}",
                "headers": {"Authorization": f"Bearer {secret('mcp-header')}"},
                "oauth": {"clientId": "id", "clientSecret": secret("mcp-client")},
            },
        },
        "permission": {"*": "allow", "external_directory": "allow"},
        "command": {"look": {"template": "It says: !`env`", "description": "Looks"}},
    }


def secret_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    named = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "COMPANY_LLM", "COMPANY_LOGIN", "OPENSESSION_TOKENS", "opensession_tokens")
    for name in named:
        monkeypatch.setenv(name, secret(name))
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", LOGIN[1])


async def say_and_do_all(app: RunningApp) -> list[str]:
    """What comes back of prompts, commands, the shell, stored keys and mistakes; a session's paths to read."""
    answers, url = [], f"/session/{(await app.create_session(title='T'))['id']}"
    for auth in (
        {"type": "api", "key": secret("stored-key")},
        {"type": "oauth", "refresh": secret("refresh"), "access": secret("access"), "expires": 0},
        {"type": "wellknown", "key": "KEY", "token": secret("wellknown")},
    ):
        await app.call("PUT", f"/auth/{auth['type']}-provider", auth)
        await app.call("PUT", "/auth/openrouter", {"type": "api", "key": secret("openrouter")})
    prompts = [{"model": {"providerID": name, "modelID": "main"}, "parts": [text_part("x")]} for name in ("echo", "company")]
    mistaken = {"x": {"options": {"apiKey": secret("mistaken-config")}, "models": 5}}
    for method, path, body in (
        ("POST", f"{url}/message", {"parts": [text_part("run")]}),
        ("POST", f"{url}/shell", {"agent": "build", "command": "env; cat /proc/self/environ"}),
        ("POST", f"{url}/command", {"command": "look", "arguments": ""}),
        *(("POST", f"{url}/message", prompt) for prompt in prompts),
        ("PUT", "/auth/wrong", {"type": "api", "key": [secret("mistaken-key")]}),
        ("PUT", "/auth/wrong", {"type": "oauth", "access": secret("mistaken-access"), "token": secret("mistaken-token")}),
        ("PATCH", "/config", {"provider": mistaken}),
        ("GET", "/session?token=" + secret("in-an-address"), None),
        ("GET", "/nowhere?key=" + secret("in-an-address"), None),
    ):
        response = await app.client.request(method, path, json=body)
        assert response.status_code in (200, 400, 404), response.text
        answers.append(f"{response.headers} {response.text}")
    return answers


async def read_all(app: RunningApp) -> dict[str, str]:
    """The answer of every GET route, by its path, for every session that there is."""
    found = {}
    for session in await app.get("/session"):
        messages = await app.messages(session["id"])
        known = {"sessionID": session["id"], "messageID": messages[-1]["info"]["id"]} if messages else {}
        for method, template in every_route(app.fastapi):
            if method == "GET" and template not in STREAMS:
                path = template
                for name, value in known.items():
                    path = path.replace(f"{{{name}}}", value)
                query = {"path": ".", "pattern": MARK, "query": MARK, "provider": "echo", "model": "main"}
                response = await app.client.get(path, params=query)
                assert response.status_code < 500, (path, response.text)
                found[path] = f"{response.headers} {response.text}"
    return found


async def test_no_secret_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: Path, caplog: pytest.LogCaptureFixture, figure: Any
) -> None:
    secret_environment(monkeypatch)
    caplog.set_level(logging.DEBUG, "app")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the test's own client
    turns = [[bash("env; cat /proc/self/environ; git config -l")], [say("Done.")], [say("Done.")]]
    with echoing_model() as url:
        settings = plain_environment / ".config" / "opencode"
        settings.mkdir(parents=True)
        (settings / "opencode.json").write_text(json.dumps(config(url)))
        async with running_app(tmp_path, turns=turns, workspace=configured(tmp_path, {}), auth=LOGIN) as app:
            async with app.events("/global/event") as events:
                seen = {"answers": "\n".join(await say_and_do_all(app))}
                seen |= await read_all(app)
                await app.create_session(title="last")
                await events.until(lambda event: event.type == "session.created" and event.properties["info"]["title"] == "last")
                seen["events"] = "\n".join(json.dumps(event.data) for event in events.seen)
            ran = [part for message in await app.messages((await app.get("/session"))[-1]["id"]) for part in message["parts"]]
        # What the server has written, but for the keys that it keeps.
        written = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.name != "auth.json"]
        seen |= {str(path): path.read_bytes().decode("latin-1") for path in written}
    seen["log"] = caplog.text
    assert sum("PATH=" in json.dumps(part) for part in ran) >= 3, "tool, shell and command have shown their environment"
    leaks = {
        (place, text[at - 60 : at + 40]) for place, text in seen.items() for at in range(len(text)) if text.startswith(MARK, at)
    }
    figure(f"{len(seen)} places searched for 23 secrets: {len(leaks)} leaks")
    assert leaks == set(), "\n".join(sorted(map(str, leaks)))
