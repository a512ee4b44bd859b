"""The whole server in this process, over ASGI: a real database, real git and real files below a directory, a scripted model.

    async with running_app(tmp_path, turns=[[{"text": "Hello."}]]) as app:
        session = await app.create_session()
        answer = await app.prompt(session["id"], "Hi")
        async with app.events() as events:
            await events.until("session.idle")

Opened a second time on the same directory it finds everything as it was left, as a restarted server does.
"""

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
from fastapi import FastAPI
from running_server import new_workspace as make_workspace
from sse_reader import EventReader
from starlette.routing import BaseRoute

from app.api.client import StreamingTransport
from app.main import ROUTERS, create_app
from app.project.sandbox import machine
from app.project.sandbox.scope import MachineFacts
from app.providers.scripted import ScriptedAnswer, ScriptedProvider, ScriptedStep
from app.record.engine import make_engine
from app.record.migrate import upgrade
from app.server import Choices, Server
from app.settings import Settings

PATIENCE = 60.0
"""Seconds after which a test that waits has failed."""

Turns = Iterable[Sequence[ScriptedStep | Mapping[str, Any]]]

GREETING = ("/event", "/global/event")

NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@dataclass(frozen=True)
class RunningApp:
    """`client` speaks to the server; `provider` plays the turns and keeps the requests; `directory` is the workspace."""

    fastapi: FastAPI
    client: httpx2.AsyncClient
    provider: ScriptedProvider
    directory: Path
    data_dir: Path

    @property
    def services(self) -> Server:
        return self.fastapi.state.server

    def is_held(self, session_id: str) -> bool:
        """Whether any request works on the session or waits to."""
        return self.services.live.get(session_id).is_held

    async def call(self, method: str, path: str, body: Any = None, *, expect: int = 200, **options: Any) -> Any:
        """The answer's JSON, None without a body; fails on another status."""
        if body is not None:
            options["json"] = body
        response = await self.client.request(method, path, **options)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text}"
        return json.loads(response.content) if response.content.strip() else None

    async def get(self, path: str, **options: Any) -> Any:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.call("POST", path, body, **options)

    async def create_session(self, **fields: Any) -> dict[str, Any]:
        """As it is read: the answer leaves out what says nothing yet."""
        return {"path": "", "cost": 0, "tokens": NO_TOKENS, **await self.post("/session", fields)}

    async def prompt(self, session_id: str, text: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
        """Waits for the answer."""
        body = {"parts": [text_part(text)], **fields}
        return await self.post(f"/session/{session_id}/message", body, expect=expect)

    async def prompt_async(self, session_id: str, text: str, *, expect: int = 204, **fields: Any) -> None:
        await self.post(f"/session/{session_id}/prompt_async", {"parts": [text_part(text)], **fields}, expect=expect)

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        return await self.get(f"/session/{session_id}/message")

    @asynccontextmanager
    async def events(self, path: str = "/event", *, cursor: int | str | None = None, **query: Any) -> AsyncIterator[EventReader]:
        """Listens from its greeting on, until the block ends. `cursor` is the Last-Event-ID of a client that comes back."""
        headers = {} if cursor is None else {"last-event-id": str(cursor)}
        async with self.client.stream("GET", path, params=query or None, headers=headers) as response:
            assert response.status_code == 200, response.status_code
            reader = EventReader(response)
            try:
                if cursor is None and path.partition("?")[0] in GREETING:
                    await reader.until("server.connected")
                yield reader
            finally:
                await reader.close()


@cache
def _template() -> Path:
    """A workspace and a migrated database, made once and copied: that is ten times as fast."""
    directory = Path(tempfile.mkdtemp(prefix="opensession-tests-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    make_workspace(directory / "workspace")
    engine = make_engine(f"sqlite:///{directory / 'opensession.db'}")
    upgrade(engine)
    engine.dispose()
    return directory


@cache
def _routes() -> list[BaseRoute]:
    """Those of every server here: what FastAPI makes of each when it is first looked at takes longer than most tests."""
    shared = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for routes in ROUTERS:
        shared.include_router(routes)
    return shared.routes


_sandboxes_that_work: set[tuple[str, bool]] = set()


def _failure_of_sandbox(facts: MachineFacts, look: Callable[[MachineFacts], str] = machine._failure) -> str:
    """One that has worked is not looked at for each server here, wherever its data is: that takes as long as a short test."""
    kind = (facts.bwrap, facts.user_namespace)
    if kind in _sandboxes_that_work:
        return ""
    if not (failure := look(facts)):
        _sandboxes_that_work.add(kind)
    return failure


def _put_database(data_dir: Path) -> None:
    if not data_dir.exists():
        data_dir.mkdir(mode=0o700, parents=True)
        shutil.copy(_template() / "opensession.db", data_dir)


@asynccontextmanager
async def running_app(
    base: Path,
    *,
    turns: Turns = (),
    otherwise: ScriptedAnswer | None = None,
    provider: ScriptedProvider | None = None,
    workspace: Path | None = None,
    heartbeat_seconds: float = 10.0,
    plugin_hook_seconds: float = 10.0,
    hostname: str = "127.0.0.1",
    auth: tuple[str, str] | None = None,
    patience: float = 3 * PATIENCE,
    **settings: Any,
) -> AsyncIterator[RunningApp]:
    """`base` holds `workspace` (made unless it is there) and `data`; `settings` are fields of app.settings.Settings."""
    provider = provider or ScriptedProvider(turns, otherwise=otherwise)
    directory = workspace or base / "workspace"
    if not directory.exists():
        shutil.copytree(_template() / "workspace", directory)
    settings = {"data_dir": base / "data", **settings}
    _put_database(settings["data_dir"])
    choices = Choices(lambda: provider, heartbeat_seconds=heartbeat_seconds, plugin_hook_seconds=plugin_hook_seconds)
    with patch.object(machine, "_failure", _failure_of_sandbox):
        app = create_app(Settings(**settings), workspace=directory, hostname=hostname, choices=choices)
    app.router.routes[:] = _routes()
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=StreamingTransport(app), base_url="http://127.0.0.1:4096", auth=auth) as client,
        asyncio.timeout(patience),
    ):
        yield RunningApp(app, client, provider, directory, settings["data_dir"])
