"""One server after another on the same workspace and data, each in a process that may be killed."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
from running_server import ROOT, clean_environment, free_port, new_workspace, start_serving, wait_until_it_answers

PATIENCE = 120


class Servers:
    def __init__(self, base: Path, **environment: str) -> None:
        self.base = base
        self.data = base / "data"
        self.workspace = new_workspace(base / "workspace")
        self.environment = environment
        (base / "home").mkdir()

    def play(self, turns: list[list[dict[str, Any]]]) -> None:
        """What the model of the next server says."""
        (self.base / "script.json").write_text(json.dumps({"turns": turns}))

    def configure(self, config: dict[str, Any]) -> None:
        (self.workspace / "opencode.json").write_text(json.dumps(config))

    @property
    def log(self) -> str:
        return (self.base / "server.log").read_text()

    @asynccontextmanager
    async def start(self) -> AsyncIterator["Client"]:
        """Killed when the block ends, unless it has ended by then."""
        port, log = free_port(), self.base / "server.log"
        script = {"OPENSESSION_SCRIPT": str(self.base / "script.json")} if (self.base / "script.json").exists() else {}
        environment = clean_environment(
            self.base / "home", OPENSESSION_DATA_DIR=str(self.data), PYTHONPATH=str(ROOT), **script, **self.environment
        )
        process = start_serving(self.workspace, environment, log, port)
        try:
            url = f"http://127.0.0.1:{port}"
            await asyncio.to_thread(wait_until_it_answers, process, url, log)
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
                yield Client(client, process)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


@dataclass
class Client:
    http: httpx2.AsyncClient
    process: psutil.Popen

    async def get(self, path: str, expect: int = 200) -> Any:
        response = await self.http.get(path)
        assert response.status_code == expect, f"{path}: {response.status_code} {response.text}"
        return response.json()

    async def post(self, path: str, body: Any = None) -> Any:
        """None when the connection broke before the whole answer was here."""
        try:
            response = await self.http.post(path, json=body or {})
        except httpx2.HTTPError:
            return None
        assert response.is_success, f"{path}: {response.status_code} {response.text}"
        return response.json() if response.content.strip() else True

    async def delete(self, path: str) -> bool:
        try:
            return (await self.http.delete(path)).is_success
        except httpx2.HTTPError:
            return False

    async def session(self) -> str:
        return str((await self.post("/session"))["id"])

    async def prompt(self, session: str, text: str = "Hi", path: str = "message", **fields: Any) -> Any:
        return await self.post(f"/session/{session}/{path}", {"parts": [{"type": "text", "text": text}], **fields})

    async def idle(self) -> None:
        await self.condition("/session/status", lambda found: not found)

    async def condition(self, path: str, holds: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not holds(found := await self.get(path)):
                await asyncio.sleep(0.02)
        return found

    async def ended(self, seconds: float = PATIENCE) -> int:
        """The exit status of the server."""
        return await asyncio.to_thread(self.process.wait, seconds)
