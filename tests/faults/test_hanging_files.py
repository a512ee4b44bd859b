"""Pipes in place of files of a project: whatever waits for them, others are served, and the server can be stopped."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from figures import Figure
from killable import Servers
from over_sockets import listening
from running_app import RunningApp, make_workspace, running_app
from user_logins import add_user, bearer

from app.http_server import LAST_SECONDS
from app.sessions import replicas
from app.util.shared_threads import SharedThreads

SOON = 10.0
DIRECTORIES = 40


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, roots=str(tmp_path)) as app:
        yield app


@pytest.fixture
def pipes() -> Iterator[list[Path]]:
    """Whoever still waits for their writers is let go."""
    made: list[Path] = []
    yield made
    for pipe in made:
        with suppress(OSError):
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


def with_pipe(directory: Path, name: str, pipes: list[Path]) -> Path:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    pipes.append(directory / name)
    return directory


async def assert_serves(http: httpx2.AsyncClient, directory: Path, headers: dict[str, str]) -> None:
    place = {"directory": str(directory)}
    assert (await http.post("/session", params=place, json={}, headers=headers)).status_code == 200
    for path in ("/session", "/config", "/file?path=.", "/file/status", "/vcs", "/find/file?query=a", "/find?pattern=hello"):
        url = httpx2.URL(path).copy_merge_params(place)
        assert (await http.get(url, headers=headers)).status_code == 200, path
    assert (await http.get("/global/health")).status_code == 200


PIPES = {"opencode.json": "/config", ".opencode/command/c.md": "/command", ".git/config": "/vcs", ".git/commondir": "/vcs"}


@pytest.mark.parametrize("name", PIPES)
async def test_another_user_is_served(app: RunningApp, tmp_path: Path, pipes: list[Path], name: str) -> None:
    mine = make_workspace(tmp_path / "bert" / "work")
    theirs = [with_pipe(tmp_path / "anna" / str(at), name, pipes) for at in range(DIRECTORIES)]
    anna = await add_user(app, "anna", roots=[tmp_path / "anna"])
    bert = await add_user(app, "bert", roots=[tmp_path / "bert"])
    limits, asked = httpx2.Limits(max_connections=None), [each for each in theirs for _ in range(3)]
    async with (
        listening(app) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SOON, limits=limits) as http,
    ):
        # Each directory some times at once; nobody expects an answer.
        requests = (http.get(PIPES[name], params={"directory": str(each)}, headers=bearer(anna)) for each in asked)
        waiting = [asyncio.create_task(request) for request in requests]
        try:
            await asyncio.sleep(1)
            await assert_serves(http, mine, bearer(bert))
        finally:
            for task in waiting:
                task.cancel()


async def test_the_health_check_says_that_no_thread_is_free(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "THREAD_SECONDS", 0.2)
    threads, free = SharedThreads(3, 9, 9, "test"), threading.Event()
    asyncio.get_running_loop().set_default_executor(threads)
    assert (await app.client.get("/global/health")).status_code == 200
    hanging = [threads.submit(free.wait) for _ in range(4)]
    began = time.monotonic()
    answers = await asyncio.gather(*(app.client.get("/global/health") for _ in range(5)))
    assert {answer.status_code for answer in answers} == {503} and "thread" in answers[0].json()["reason"]
    assert time.monotonic() - began < SOON
    free.set()
    assert all(each.result(SOON) for each in hanging)
    assert (await app.client.get("/global/health")).status_code == 200


@pytest.mark.parametrize("name", ["opencode.json", ".git/config", ".git/info/exclude", "AGENTS.md"])
async def test_a_server_ends_when_it_is_told_to(tmp_path: Path, pipes: list[Path], figure: Figure, name: str) -> None:
    servers = Servers(tmp_path, OPENSESSION_ROOTS=str(tmp_path), OPENSESSION_SHUTDOWN_SECONDS="1")
    directories = [make_workspace(tmp_path / f"d{at}") for at in range(DIRECTORIES // 4)]
    async with servers.start() as client:
        sessions = [(await client.post(f"/session?directory={each}"))["id"] for each in directories]
        for each in directories:
            with_pipe(each, name, pipes)
        prompts = [asyncio.create_task(client.prompt(session)) for session in sessions]
        prompts += [asyncio.create_task(client.post(f"/session?directory={directory}")) for directory in directories]
        await asyncio.sleep(1)
        began = time.monotonic()
        client.process.send_signal(signal.SIGTERM)
        await client.ended(60)
        took = time.monotonic() - began
        await asyncio.gather(*prompts, return_exceptions=True)
    assert took < 1 + LAST_SECONDS + 3
    figure(f"{name}: ended {took:.1f} s after SIGTERM with a grace period of 1 s")
