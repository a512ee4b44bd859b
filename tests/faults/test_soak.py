"""A server at work for long: clients create, prompt, fork and delete sessions, open event streams and leave, in many directories.
What is not used any more is let go of, so memory, open files and the time of an answer stay as they were."""

import asyncio
import gc
import json
import os
import shutil
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx2
from httpx2 import AsyncClient
from long_form import LONG
from model_server import ModelServer, Step, model_server
from real_server import MIB, RealServer, real_server
from running_app import make_workspace, running_app
from turns import configured, until

from app.workspace.instance import Instance

SECONDS = 60 * float(os.environ.get("OPENSESSION_SOAK_MINUTES") or (30 if LONG else 1 / 6))
CLIENTS = 4
DIRECTORIES = 60 if LONG else 15
IDLE_SECONDS = 20 if LONG else 2
MAX_MEMORY = (16 if LONG else 40) * MIB
MAX_FILES = 40
SLOWER, SLACK_MS = (1.5, 50) if LONG else (3, 1000)
"""Five seconds hold too few prompts for more than a coarse look."""
START, END, PART = (0.2, 0.8, 0.2) if LONG else (0.2, 0.6, 0.4)
PIECES: list[list[Step]] = [
    ["Some ", "words ", "of an answer."],
    [("write", {"filePath": "made.txt", "content": "made\n" * 50})],
    [("bash", {"command": "ls; cat a.txt", "description": "Looks"})],
    [("read", {"filePath": "a.txt"}), ("glob", {"pattern": "*"})],
    ["word " * 40] * 20,
]


@dataclass
class Record:
    """What was measured, each with the second it was measured at."""

    prompts: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    files: list[tuple[float, float]] = field(default_factory=list)

    def middle(self, values: list[tuple[float, float]], share: float) -> float:
        return statistics.median(self.window(values, share))

    def p95(self, share: float) -> float:
        taken = self.window(self.prompts, share)
        return statistics.quantiles(taken, n=20)[-1] if LONG or len(taken) > 1 else 0.0

    def window(self, values: list[tuple[float, float]], share: float) -> list[float]:
        """A part of the run, from `share` of it on; the first fifth, in which all is loaded, is never looked at."""
        return [value for second, value in values if share <= second / SECONDS < share + PART]


class Soak:
    def __init__(self, server: RealServer, model: ModelServer, places: list[Path]) -> None:
        self.server, self.model, self.places = server, model, places
        self.record, self._began, self._random = Record(), time.monotonic(), Random(1)

    @property
    def second(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.measure())
            for _ in range(CLIENTS):
                group.create_task(self.client())

    async def measure(self) -> None:
        while self.second < SECONDS:
            self.record.memory.append((self.second, self.server.memory))
            self.record.files.append((self.second, self.server.descriptors))
            self.model.play(*self._random.choices(PIECES, k=4))
            self.model.requests.clear()
            await asyncio.sleep(min(1, SECONDS / 50))

    async def client(self) -> None:
        while self.second < SECONDS:
            where = {"directory": str(self._random.choice(self.places))}
            path, parts = self._random.choice(["/event", "/global/event"]), self._random.choice(["full", "delta"])
            async with httpx2.AsyncClient(base_url=self.server.url, params=where, timeout=60) as client:
                async with client.stream("GET", path, params={"parts": parts}) as stream:
                    await anext(stream.aiter_lines())  # it reads its first line, and no more
                    await self.work(client)

    async def work(self, client: httpx2.AsyncClient) -> None:
        """The life of a session and its fork."""
        session = (await client.post("/session", json={})).json()["id"]
        for _ in range(3):
            await self.prompt(client, session)
        fork = (await client.post(f"/session/{session}/fork", json={})).json()["id"]
        await self.prompt(client, fork)
        for path in ("/session", f"/session/{session}/message", "/agent", "/config", "/find/file"):
            assert (await client.get(path, params={"query": "a"})).status_code == 200, path
        for gone in (session, fork):
            assert (await client.delete(f"/session/{gone}")).status_code == 200

    async def prompt(self, client: httpx2.AsyncClient, session: str) -> None:
        began = time.monotonic()
        answer = await client.post(f"/session/{session}/message", json={"parts": [{"type": "text", "text": "Go on"}]})
        assert answer.status_code == 200 and not answer.json()["info"].get("error"), answer.text
        self.record.prompts.append((self.second, (time.monotonic() - began) * 1000))


def make_places(base: Path) -> list[Path]:
    template = make_workspace(base / "template")
    return [Path(shutil.copytree(template, base / "places" / str(number))) for number in range(DIRECTORIES)]


async def test_a_server_at_work_for_long(tmp_path: Path, figure: Any) -> None:
    places = make_places(tmp_path)
    with model_server() as model:
        config = json.dumps({**model.config(), "permission": {"*": "allow"}})
        environment = {"OPENSESSION_ROOTS": str(tmp_path / "places"), "OPENSESSION_IDLE_SECONDS": str(IDLE_SECONDS)}
        with real_server(tmp_path, OPENCODE_CONFIG_CONTENT=config, **environment) as server:
            soak = Soak(server, model, places)
            await soak.run()
            figure(report(soak.record))
            tracebacks = server.tracebacks()
    record = soak.record
    assert record.middle(record.memory, END) - record.middle(record.memory, START) <= MAX_MEMORY
    assert record.middle(record.files, END) - record.middle(record.files, START) <= MAX_FILES
    if record.p95(START):  # the short form may end before its first prompts are answered
        assert record.p95(END) <= SLOWER * record.p95(START) + SLACK_MS
    assert tracebacks == []


def report(record: Record) -> str:
    figures = (
        (" MiB", "memory", lambda share: record.middle(record.memory, share) / MIB),
        ("", "open files", lambda share: record.middle(record.files, share)),
        (" ms", "p95", record.p95),
    )
    told = [f"{what} {' → '.join(f'{of(share):.0f}' for share in (START, END))}{unit}" for unit, what, of in figures]
    return f"{SECONDS / 60:.1f} min, {len(record.prompts)} prompts in {DIRECTORIES} directories: {', '.join(told)}"


def instances_and_clients() -> int:
    gc.collect()
    return sum(isinstance(thing, Instance | AsyncClient) for thing in gc.get_objects())


async def test_what_is_idle_is_closed(tmp_path: Path, figure: Any) -> None:
    """In this process, where it can be counted."""
    places = make_places(tmp_path)
    with model_server() as model:
        workspace = configured(tmp_path, model.config())
        for place in places:
            (place / "opencode.json").write_text(json.dumps(model.config()))
        async with running_app(tmp_path, workspace=workspace, roots=str(tmp_path / "places"), idle_seconds=0.5) as app:
            workspaces, own = app.services.instances.workspaces, instances_and_clients()
            for place in places:
                session = await app.post("/session", {"title": "T"}, params={"directory": str(place)})
                await app.prompt(session["id"], "Hi")
                await app.call("DELETE", f"/session/{session['id']}")
            held = instances_and_clients() - own
            await until(lambda: workspaces.open_directories() == [], "the end of all instances")
            with suppress(TimeoutError):  # the last one is closing
                async with asyncio.timeout(10):
                    while left := instances_and_clients() - own:  # the test asks by a client too
                        await asyncio.sleep(0.1)
            async with app.events():
                await asyncio.sleep(1.2)
                kept = workspaces.open_directories()
            listeners = app.services.bus.listeners()
        asked = len(model.requests)
    figure(
        f"{asked} prompts in {len(places)} directories; when idle {left} instances and provider clients, {listeners} listeners"
    )
    assert asked == len(places) and held > 0 and left == listeners == 0
    assert kept == [str(app.directory)], "a directory that a client listens to stays"
