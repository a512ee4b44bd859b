"""What flows have in common: steps of a scripted model, and how to look at what came of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from running_app import RunningApp, make_workspace, running_app

from app.providers.base import ModelRequest
from app.sessions.fork import is_default_title

PATIENCE = 60.0

Step = dict[str, Any]
Message = dict[str, Any]


def say(text: str = "Done.", **fields: Any) -> Step:
    return {"text": text, **fields}


def call(tool: str, call_id: str | None = None, /, **args: Any) -> Step:
    return {"tool": tool, "args": args, **({"id": call_id} if call_id else {})}


def bash(command: str, call_id: str | None = None, **args: Any) -> Step:
    return call("bash", call_id, command=command, description="Runs it", **args)


def task(prompt: str = "Look around", agent: str = "general", **args: Any) -> Step:
    return call("task", description="Look", prompt=prompt, subagent_type=agent, **args)


def configured(base: Path, config: dict[str, Any]) -> Path:
    """A workspace with this `opencode.json`, to be given to running_app."""
    directory = base / "workspace"
    if not directory.exists():
        make_workspace(directory)
    (directory / "opencode.json").write_text(json.dumps(config))
    return directory


@asynccontextmanager
async def talking(
    base: Path, *, config: dict[str, Any] | None = None, title: str | None = None, **options: Any
) -> AsyncIterator[tuple[RunningApp, str]]:
    """A server, in a workspace with this `opencode.json`, and a new session."""
    if config is not None:
        options["workspace"] = configured(base, config)
    async with running_app(base, **options) as app:
        yield app, (await app.create_session(**({"title": title} if title else {})))["id"]


def priced(**model: Any) -> dict[str, Any]:
    """A configuration with a scripted model that costs something, and a small one for titles."""
    return {
        "model": "acme/big",
        "small_model": "acme/title",
        "provider": {
            "acme": {
                "npm": "scripted",
                "models": {
                    "big": {"name": "Big", "limit": {"context": 200000, "output": 8000}, **model},
                    "other": {"name": "Other", "limit": {"context": 200000, "output": 8000}},
                    "title": {"name": "Titles", "limit": {"context": 8000, "output": 1000}},
                },
            }
        },
    }


def requests(app: RunningApp) -> list[ModelRequest]:
    """What the model was asked, without the requests for titles."""
    return [request for request in app.provider.requests if "title" not in request.model.id]


def title_requests(app: RunningApp) -> list[ModelRequest]:
    return [request for request in app.provider.requests if "title" in request.model.id]


def types(message: Message) -> list[str]:
    return [part["type"] for part in message["parts"]]


def parts(message: Message, kind: str) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == kind]


def tools(messages: Message | list[Message]) -> list[dict[str, Any]]:
    listed = messages if isinstance(messages, list) else [messages]
    return [part for message in listed for part in parts(message, "tool")]


def texts(message: Message) -> list[str]:
    return [part["text"] for part in parts(message, "text")]


async def until(condition: Callable[[], Any], what: str = "the condition") -> None:
    """For what no event tells of."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None


async def pending(app: RunningApp, kind: str = "permission") -> dict[str, Any]:
    """The first request that waits for a person."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := await app.get(f"/{kind}")):
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"no {kind} was asked") from None
    request: dict[str, Any] = found[0]
    return request


async def titled(app: RunningApp, session_id: str) -> dict[str, Any]:
    """The session when it has a title of its own: that may come after the answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            while is_default_title((found := await app.get(f"/session/{session_id}"))["title"]):
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{session_id} got no title") from None
    session: dict[str, Any] = found
    return session


async def statuses(app: RunningApp) -> dict[str, Any]:
    found: dict[str, Any] = await app.get("/session/status")
    return found


def assert_finished(messages: list[Message]) -> None:
    """Nothing is left open in a session that is idle."""
    for message in messages:
        if message["info"]["role"] == "assistant":
            assert "completed" in message["info"]["time"], message["info"]
    for part in tools(messages):
        assert part["state"]["status"] in ("completed", "error"), part
