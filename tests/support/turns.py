"""What flows have in common: steps of a scripted model, and how to look at what came of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from polling import until
from running_app import RunningApp, make_workspace, running_app

from app.providers.base import ModelRequest
from app.sessions.summary import is_default_title

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]
BIG = {"providerID": "acme", "modelID": "big"}
DONE = [{"text": "Done."}]

Step = dict[str, Any]
Message = dict[str, Any]


def say(text: str = "Done.", **fields: Any) -> Step:
    return {"text": text, **fields}


def call(tool: str, call_id: str | None = None, /, **args: Any) -> Step:
    return {"tool": tool, "args": args, **({"id": call_id} if call_id else {})}


def bash(command: str, call_id: str | None = None, **args: Any) -> Step:
    return call("bash", call_id, command=command, description="Runs it", **args)


def write(path: Path | str, content: str, call_id: str | None = None) -> Step:
    return call("write", call_id, filePath=str(path), content=content)


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


def infos(messages: list[Message], role: str = "user") -> list[dict[str, Any]]:
    return [message["info"] for message in messages if message["info"]["role"] == role]


async def states(app: RunningApp, session_id: str) -> list[dict[str, Any]]:
    """Of all calls of tools in a session."""
    return [part["state"] for part in tools(await app.messages(session_id))]


async def states_after(app: RunningApp, *steps: list[Any], **session: Any) -> list[dict[str, Any]]:
    """Of the calls that these steps make in a new session."""
    app.provider.add(*steps)
    created = await app.create_session(**session)
    await app.prompt(created["id"], "Go")
    return await states(app, created["id"])


async def until_done(app: RunningApp, session_id: str) -> None:
    """Until nothing works on the session any more."""
    await until(lambda: not app.services.live.is_running(session_id), "the end of the turn")


async def until_stored(app: RunningApp, session_id: str, messages: int) -> None:
    async def are_there() -> bool:
        return len(await app.messages(session_id)) >= messages

    await until(are_there, f"message {messages}")


async def until_shown(app: RunningApp, session_id: str, text: str) -> None:
    """Until this stands somewhere in the messages."""

    async def is_there() -> bool:
        return text in str(await app.messages(session_id))

    await until(is_there, text)


async def all_pending(app: RunningApp, count: int = 1, kind: str = "permission") -> list[dict[str, Any]]:
    """What waits for a person, when there is so much of it."""

    async def enough() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await app.get(f"/{kind}")
        return found if len(found) >= count else []

    return await until(enough, f"{kind} {count}")


async def pending(app: RunningApp, kind: str = "permission") -> dict[str, Any]:
    """The first request that waits for a person."""
    return (await all_pending(app, kind=kind))[0]


async def reply(app: RunningApp, request: dict[str, Any], answer: str = "once", **fields: str) -> None:
    assert await app.post(f"/permission/{request['id']}/reply", {"reply": answer, **fields}) is True


async def titled(app: RunningApp, session_id: str) -> dict[str, Any]:
    """The session when it has a title of its own: that may come after the answer."""

    async def with_title() -> dict[str, Any] | None:
        found: dict[str, Any] = await app.get(f"/session/{session_id}")
        return None if is_default_title(found["title"]) else found

    return await until(with_title, f"the title of {session_id}")


async def summarize(app: RunningApp, session_id: str, *, expect: int = 200, **fields: Any) -> Any:
    return await app.post(f"/session/{session_id}/summarize", {**BIG, **fields}, expect=expect)


async def play(app: RunningApp, session_id: str, *calls: Step, text: str = "Do it") -> str:
    """Prompt for a turn that makes these calls in one step; the id of the prompt."""
    app.provider.add([*calls], DONE)
    answer = await app.prompt(session_id, text)
    assert answer["info"].get("error") is None, answer
    return answer["info"]["parentID"]


async def revert(app: RunningApp, session_id: str, message_id: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"messageID": message_id, **fields}
    return await app.post(f"/session/{session_id}/revert", body, expect=expect)


async def unrevert(app: RunningApp, session_id: str, *, expect: int = 200) -> dict[str, Any]:
    return await app.post(f"/session/{session_id}/unrevert", expect=expect)


async def statuses(app: RunningApp) -> dict[str, Any]:
    return await app.get("/session/status")


def assert_finished(messages: list[Message]) -> None:
    """Nothing is left open in a session that is idle."""
    for message in messages:
        if message["info"]["role"] == "assistant":
            assert "completed" in message["info"]["time"], message["info"]
    for part in tools(messages):
        assert part["state"]["status"] in ("completed", "error"), part
