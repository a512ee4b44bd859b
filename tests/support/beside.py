"""This server and OpenCode's own one, asked the same: what each answers and announces, as far as it can be compared.

Ids, times and names of the workspace stand as `<ses>`, `<time>`, `<here>`. What this server has beside OpenCode's keys is no
difference.
"""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from model_server import ModelServer, model_server
from opencode_program import NEWER, OFFLINE, installed, offline_home
from running_server import RunningServer, free_port, new_workspace, serving_again, this_checkout

STREAMS = ("/event", "/global/event")
PATIENCE_SECONDS = 60
_ID = re.compile(r"\b(ses|msg|prt|per|que|evt|call|tool)_[0-9A-Za-z]{1,40}\b")
_HASH = re.compile(r"\b[0-9a-f]{40}\b")
_OWN = {"slug", "version", "callID", "date", "ref", "seq", "admittedSeq", "promotedSeq"}
"""Keys whose values each server makes up."""


@dataclass
class Side:
    """One of the two servers, and the model that it asks."""

    http: httpx2.AsyncClient
    workspace: Path
    model: ModelServer
    events: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {stream: [] for stream in STREAMS})

    async def call(self, method: str, path: str, body: Any = None, raw: bytes | None = None) -> dict[str, Any]:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        answer = await self.http.request(method, path, content=content, headers={"Content-Type": "application/json"})
        return {"status": answer.status_code, "body": answer.json() if answer.text.strip() else None}

    async def get(self, path: str) -> Any:
        return (await self.call("GET", path))["body"]

    async def post(self, path: str, body: Any = None) -> dict[str, Any]:
        return await self.call("POST", path, {} if body is None else body)

    async def session(self, **wanted: Any) -> str:
        return str((await self.post("/session", {"title": "Compared", **wanted}))["body"]["id"])

    async def prompt(self, session: str, text: str = "Go", **wanted: Any) -> dict[str, Any]:
        parts = wanted.pop("parts", [{"type": "text", "text": text}])
        answer = await self.post(f"/session/{session}/message", {"parts": parts, **wanted})
        await self.idle(session)
        return answer

    async def idle(self, session: str) -> None:
        async def is_idle() -> bool:
            return (await self.get("/session/status")).get(session, {"type": "idle"}) == {"type": "idle"}

        await self.until(is_idle)

    async def asked(self, kind: str, session: str) -> Any:
        """The permission request or question that waits in a session."""

        async def waits() -> Any:
            return next((each for each in await self.get(f"/{kind}") if each["sessionID"] == session), None)

        return await self.until(waits)

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (value := await condition()):
                await asyncio.sleep(0.05)
        return value

    async def all_of(self, session: str) -> dict[str, Any]:
        """What can be read of a session when its turn and the diffs after it are over."""
        await self.idle(session)
        await asyncio.sleep(1)  # OpenCode stores the diffs after it is idle, and says nothing when there is none
        paths = {"messages": "/message", "todo": "/todo", "children": "/children"}
        return {"session": await self.get(f"/session/{session}")} | {
            name: await self.get(f"/session/{session}{path}") for name, path in paths.items()
        }

    def file(self, name: str) -> str:
        return str(self.workspace / name)

    async def _listen(self, stream: str, heard: asyncio.Event) -> None:
        async with self.http.stream("GET", stream, timeout=None) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    self.events[stream].append(json.loads(line.removeprefix("data:")))
                    heard.set()

    @asynccontextmanager
    async def listening(self) -> Any:
        heard = {stream: asyncio.Event() for stream in STREAMS}
        tasks = [asyncio.create_task(self._listen(stream, heard[stream])) for stream in STREAMS]
        await asyncio.gather(*(each.wait() for each in heard.values()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Difference(NamedTuple):
    place: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        theirs, ours = (json.dumps(value)[:160] for value in (self.theirs, self.ours))
        return f"{self.place}: OpenCode {theirs}, here {ours}"


def comparable(value: Any, workspace: Path, key: str = "") -> Any:
    match value:
        case dict():
            return {_plain(name, workspace): comparable(each, workspace, name) for name, each in value.items()}
        case list():
            return [comparable(each, workspace, key) for each in value]
        case _ if key in _OWN:
            return "<own>"
        case str():
            return _plain(value, workspace)
        case int() | float() if value > 1e12:
            return "<time>"
        case float():
            return round(value, 9)
    return value


def _plain(text: str, workspace: Path) -> str:
    text = text.replace(str(workspace), "<here>")
    return _HASH.sub("<hash>", _ID.sub(lambda found: f"<{found[1]}>", text))


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[Difference]:
    """What OpenCode has and this server has not, or otherwise."""
    match theirs, ours:
        case dict(), dict():
            for name in sorted(theirs):
                if name in ours:
                    yield from differences(theirs[name], ours[name], f"{place}.{name}")
                else:
                    yield Difference(f"{place}.{name}", theirs[name], None)
        case list(), list():
            if len(theirs) != len(ours):
                yield Difference(f"{place}.length", len(theirs), len(ours))
            for number, (their, our) in enumerate(zip(theirs, ours, strict=False)):
                yield from differences(their, our, f"{place}.{number}")
        case _ if theirs != ours:
            yield Difference(place, theirs, ours)


def told(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Of events: their keys by kind; and which kinds came first of each message, part and request, in this order."""
    keys: dict[str, dict[str, str]] = {}
    order: dict[tuple[str, str], None] = {}
    for event in events:
        kind, subject = _kind(event.get("payload", event))
        keys.setdefault(kind, {}).update(json_types(event))
        if subject is not None:
            order[kind, subject] = None
    return {"keys": keys, "order": [kind for kind, _ in order]}


def _kind(event: dict[str, Any]) -> tuple[str, str | None]:
    """With the id of what it is about, where there is an order that can be told."""
    properties, kind = event.get("properties", {}), event["type"]
    match kind:
        case "message.part.updated":
            part = properties["part"]
            state = f":{part['state']['status']}" if part["type"] == "tool" else ""
            return f"{kind}:{part['type']}{state}", part["id"]
        case "message.updated":
            info = properties["info"]
            ended = ":completed" if info["time"].get("completed") else ""
            return f"{kind}:{info['role']}{ended}", info["id"]
        case "permission.asked" | "permission.replied" | "question.asked" | "question.replied" | "question.rejected":
            return kind, properties.get("id") or properties["requestID"]
        case "session.status":
            return f"{kind}:{properties['status']['type']}", None
        case "session.created":
            return kind, properties["info"]["id"]
    return kind, None


def json_types(value: Any, place: str = "") -> dict[str, str]:
    """By place the JSON type."""
    if isinstance(value, list):
        return {key: kind for each in value for key, kind in json_types(each, f"{place}[]").items()}
    if not isinstance(value, dict):
        return {}
    own = {f"{place}.{name}": _json_type(each) for name, each in value.items()}
    return own | {key: kind for name, each in value.items() for key, kind in json_types(each, f"{place}.{name}").items()}


def _json_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


Asked = tuple[RunningServer, ModelServer]


@contextmanager
def _asked_of(command: list[str], directory: Path, environment: dict[str, str]) -> Iterator[Asked]:
    """A server in a workspace that names its own model."""
    with model_server() as model:
        commands = {name: {"template": "Say hello to $ARGUMENTS", "description": "greets"} for name in ("hello", "greet")}
        content = {**model.config(), "share": "disabled", "permission": {"bash": "ask"}, "command": commands}
        content["provider"]["fake"]["models"]["main"]["cost"] = {"input": 3, "output": 15}
        (new_workspace(directory / "workspace") / "opencode.json").write_text(json.dumps(content))
        home = directory / "home"
        home.mkdir()
        with serving_again(command, directory, free_port(), environment | {"SHELL": "/bin/sh"}) as running:
            offline_home(home)
            yield running, model


def opencode(node_modules: Path, directories: pytest.TempPathFactory, version: str = NEWER) -> AbstractContextManager[Asked]:
    """Of the newer version the binary that OPENCODE_PROGRAM names, else the one that npm installed."""
    named = os.environ.get("OPENCODE_PROGRAM") if version == NEWER else None
    command = [named or str(installed(node_modules, version)), "serve", "--port", "PORT", "--hostname", "127.0.0.1"]
    return _asked_of(command, directories.mktemp("opencode"), OFFLINE)


def this_server(directories: pytest.TempPathFactory) -> AbstractContextManager[Asked]:
    command, environment = this_checkout()
    return _asked_of(command, directories.mktemp("here"), environment)
