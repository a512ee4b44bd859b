"""Requests that meet on one session of a real server: each is done wholly before the other or after it, or refused."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from killable import Client, Servers
from long_form import LONG
from turns import assert_finished, bash, say

Figure = Callable[[str], None]
Message = dict[str, Any]

GIT = shutil.which("git")
ROUNDS = 100 if LONG else 6
MOMENTS = [0.0, 0.002, 0.005, 0.01, 0.02, 0.05]
"""Seconds from the requests to the deletion that they meet."""
PROMPT = {"parts": [{"type": "text", "text": "Hi"}]}
MODEL = {"providerID": "scripted", "modelID": "rules"}
SLOWLY = {"text": "one two three four five", "chunks": 5, "delay": 0.02}


async def messages(client: Client, session: str) -> list[Message]:
    found: list[Message] = await client.get(f"/session/{session}/message")
    return found


def errors(log: str) -> list[str]:
    return [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")]


async def test_a_prompt_deleted_right_after_its_204_is_refused_and_answered(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path)
    servers.play([[SLOWLY]] * ROUNDS)
    refused = 0
    async with servers.start() as client:
        session = (await client.post("/session", {"title": "T"}))["id"]
        for number in range(ROUNDS):
            prompt = f"msg_mine{number}"
            await client.prompt(session, "Hi", "prompt_async", messageID=prompt)
            response = await client.http.delete(f"/session/{session}/message/{prompt}")
            refused += response.status_code == 409
            await client.idle()
            found = await messages(client, session)
            assert_finished(found)
            present = {message["info"]["id"] for message in found}
            orphans = [message for message in found if message["info"].get("parentID", prompt) not in present]
            assert not orphans and found[-1]["info"]["parentID"] == prompt
    figure(f"{refused} of {ROUNDS} deletions refused, {ROUNDS} prompts answered, 0 orphan answers")
    assert refused == ROUNDS and errors(servers.log) == []


Held = Callable[[Servers, Client, str, str], Any]
"""(servers, client, session, the prompt whose turn changed a file) → the session is at work until the block ends."""


@asynccontextmanager
async def revert(servers: Servers, client: Client, session: str, prompt: str) -> AsyncIterator[None]:
    async with held_by_git(servers, client.post(f"/session/{session}/revert", {"messageID": prompt})):
        yield


@asynccontextmanager
async def unrevert(servers: Servers, client: Client, session: str, prompt: str) -> AsyncIterator[None]:
    await client.post(f"/session/{session}/revert", {"messageID": prompt})
    async with held_by_git(servers, client.post(f"/session/{session}/unrevert")):
        yield


@asynccontextmanager
async def held_by_git(servers: Servers, request: Awaitable[Any]) -> AsyncIterator[None]:
    """Git hangs in this block."""
    hang, hangs = servers.base / "hang", servers.base / "hangs"
    hang.touch()
    task = asyncio.ensure_future(request)
    await appears(hangs)
    yield
    hang.unlink()
    hangs.unlink()
    assert await task


@asynccontextmanager
async def shell(servers: Servers, client: Client, session: str, prompt: str) -> AsyncIterator[None]:
    line = {"agent": "build", "command": "touch began; while [ ! -e go ]; do sleep 0.02; done; rm began go"}
    task = asyncio.create_task(client.post(f"/session/{session}/shell", line))
    await appears(servers.workspace / "began")
    yield
    (servers.workspace / "go").touch()
    assert await task


@asynccontextmanager
async def summary(servers: Servers, client: Client, session: str, prompt: str) -> AsyncIterator[None]:
    """Its model speaks for a second."""
    task = asyncio.create_task(client.post(f"/session/{session}/summarize", MODEL))
    await client.condition(f"/session/{session}/message", lambda found: found[-1]["info"].get("summary"))
    yield
    assert await task


async def appears(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.005)


def hanging_git(base: Path) -> str:
    """A PATH whose git stops before it writes a tree, while `hang` is there."""
    wrapper = base / "bin" / "git"
    wrapper.parent.mkdir(parents=True)
    stop = f"touch {base}/hangs; while [ -e {base}/hang ]; do sleep 0.02; done"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *ls-files*) if [ -e {base}/hang ]; then {stop}; fi;; esac\nexec {GIT} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper.parent)


def edits(session: str, message: Message) -> list[tuple[str, str, Any]]:
    path, part = f"/session/{session}/message/{message['info']['id']}", message["parts"][0]
    at_part = f"{path}/part/{part['id']}"
    return [("DELETE", path, None), ("DELETE", at_part, None), ("PATCH", at_part, {**part, "text": "changed"})]


@pytest.mark.parametrize("held", [revert, unrevert, shell, summary])
async def test_edits_that_meet_other_work_are_refused(tmp_path: Path, figure: Figure, held: Held) -> None:
    servers = Servers(tmp_path, PATH=f"{hanging_git(tmp_path)}:{os.environ['PATH']}", OPENSESSION_SANDBOX="off")
    spoken = {"text": "In short: nothing happened here at all.", "chunks": 20, "delay": 0.05}
    servers.play([[bash("echo two > a.txt")], [say("Done.")], [spoken]])
    statuses: Counter[int] = Counter()
    async with servers.start() as client:
        session = (await client.post("/session", {"title": "T"}))["id"]
        prompt = (await client.prompt(session))["info"]["parentID"]
        await client.idle()
        before = await messages(client, session)
        async with held(servers, client, session, prompt):
            for message in before:
                for method, path, body in edits(session, message):
                    statuses[(await client.http.request(method, path, json=body)).status_code] += 1
        await client.idle()
        after = await messages(client, session)
        assert after[: len(before)] == before
        assert_finished(after)
        if held is revert:
            await client.post(f"/session/{session}/unrevert")
    figure(f"{held.__name__}: {statuses[409]} of {statuses.total()} edits refused")
    assert set(statuses) == {409} and errors(servers.log) == []
    assert (servers.workspace / "a.txt").read_text() == "two\n"


async def test_a_message_that_is_reverted_is_not_deleted_and_unrevert_brings_the_files_back(
    tmp_path: Path, figure: Figure
) -> None:
    servers = Servers(tmp_path)
    servers.play([[bash("echo two > a.txt")], [say("Done.")]])
    refused = 0
    async with servers.start() as client:
        session = (await client.post("/session", {"title": "T"}))["id"]
        prompt = (await client.prompt(session))["info"]["parentID"]
        await client.idle()
        await client.post(f"/session/{session}/revert", {"messageID": prompt})
        assert (servers.workspace / "a.txt").read_text() == "hello\nworld\n"
        for message in await messages(client, session):
            for method, path, body in edits(session, message):
                response = await client.http.request(method, path, json=body)
                refused += response.status_code == 409 and response.json()["name"] == "MessageRevertedError"
        await client.post(f"/session/{session}/unrevert")
    assert (servers.workspace / "a.txt").read_text() == "two\n"
    figure(f"{refused} edits of reverted messages refused, the files are back")
    assert refused == 9


async def test_prompts_and_subagents_that_meet_a_deletion_leave_nothing_behind(tmp_path: Path, figure: Figure) -> None:
    """No session, no error in the log, nothing that runs on, also seconds later."""
    servers = Servers(tmp_path)
    statuses: Counter[int] = Counter()
    async with servers.start() as client:
        for number in range(ROUNDS):
            session = await client.session()
            asked = [("message", PROMPT), ("prompt_async", PROMPT), ("summarize", MODEL), ("prompt_async", PROMPT)]
            sent = [asyncio.create_task(client.http.post(f"/session/{session}/{path}", json=body)) for path, body in asked]
            await asyncio.sleep(MOMENTS[number % len(MOMENTS)])
            assert await client.delete(f"/session/{session}")
            answers: list[httpx2.Response] = await asyncio.gather(*sent)
            statuses.update(answer.status_code for answer in answers)
            await client.get(f"/session/{session}", expect=404)
        assert await client.get("/session") == [] and await client.get("/session/status") == {}
        await asyncio.sleep(2.5)  # what was retried each second is seen in the log then
    figure(f"{ROUNDS} deletions met {statuses.total()} requests {dict(statuses)}: 0 errors in the log")
    assert set(statuses) <= {200, 204, 404, 409} and errors(servers.log) == []
