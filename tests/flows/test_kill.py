"""A server that is killed (-9) at random moments and started again: what it acknowledged is there, what it had not finished is
closed or answered, and every session takes the next prompt."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from running_server import ROOT, clean_environment, free_port, new_workspace, wait_until_it_answers
from turns import assert_settled, bash, call, say, texts, tools

KILLS = 3
PROMPT = {"parts": [{"type": "text", "text": "Hi"}]}
SCRIPT: list[list[dict[str, Any]]] = [
    [say("A text that takes its time.", chunks=20, delay=0.01)],
    [say("I run it."), bash("echo working; sleep 0.2; echo worked >> log.txt")],
    [{"reasoning": "Hm.", "chunks": 3, "delay": 0.01}, say("And so on.", chunks=5, delay=0.01)],
    [bash("sleep 0.1", "c1"), call("read", "c2", filePath="a.txt")],
    [{"status": 429, "headers": {"retry-after-ms": "50"}, "message": "slow down"}],
    [say("In the end.")],
]


class Servers:
    """One server after another, on the same workspace and data."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.workspace = new_workspace(base / "workspace")
        (base / "home").mkdir()
        self.play(SCRIPT * 40)

    def play(self, turns: list[list[dict[str, Any]]]) -> None:
        """What the model of the next server says."""
        (self._base / "script.json").write_text(json.dumps({"turns": turns}))

    @asynccontextmanager
    async def start(self) -> AsyncIterator["Client"]:
        """Killed when the block ends."""
        port, log = free_port(), self._base / "server.log"
        environment = clean_environment(
            self._base / "home",
            OPENSESSION_DATA_DIR=str(self._base / "data"),
            OPENSESSION_SCRIPT=str(self._base / "script.json"),
            PYTHONPATH=str(ROOT),
        )
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--port", str(port)],
                cwd=self.workspace,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            await asyncio.to_thread(wait_until_it_answers, process, url, log)
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                yield Client(client)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


@dataclass
class Client:
    http: httpx.AsyncClient

    async def get(self, path: str, expect: int = 200) -> Any:
        response = await self.http.get(path)
        assert response.status_code == expect, f"{path}: {response.status_code} {response.text}"
        return response.json()

    async def post(self, path: str, body: Any = None) -> Any:
        """None when the connection broke before the whole answer was here."""
        try:
            response = await self.http.post(path, json=body or {})
        except httpx.HTTPError:
            return None
        assert response.is_success, f"{path}: {response.status_code} {response.text}"
        return response.json() if response.content.strip() else True

    async def delete(self, path: str) -> bool:
        try:
            return (await self.http.delete(path)).is_success
        except httpx.HTTPError:
            return False


@dataclass
class Acknowledged:
    """What clients were told is so."""

    sessions: dict[str, int] = field(default_factory=dict)
    """And with how many messages at least: a fork's are there from its beginning."""
    prompts: list[tuple[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    """Their deletion was asked for; whether it happened, nobody was told."""


class Crowd:
    """Clients that do random things until the server is gone."""

    def __init__(self, client: Client, seed: int, known: Acknowledged) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._known = known
        self._count = 0

    async def work(self) -> None:
        while True:
            await self._random.choice([self._prompt, self._prompt, self._prompt_async, self._keep, self._fork, self._delete])()
            await asyncio.sleep(self._random.random() * 0.02)

    async def _session(self) -> str | None:
        free = [session for session in self._known.sessions if session not in self._known.doomed]
        if free and self._random.random() < 0.6:
            return self._random.choice(free)
        made = await self._client.post("/session")
        if made is None:
            return None
        self._known.sessions[made["id"]] = 0
        return str(made["id"])

    def _message(self) -> dict[str, Any]:
        self._count += 1
        message_id = f"msg_{self._random.getrandbits(64):x}"
        return {"messageID": message_id, "parts": [{"type": "text", "text": f"Prompt {self._count}"}]}

    async def _send(self, path: str, **fields: Any) -> Any:
        session, body = await self._session(), {**self._message(), **fields}
        told = session and await self._client.post(f"/session/{session}/{path}", body)
        if told and session not in self._known.doomed:
            self._known.prompts.append((str(session), body["messageID"]))
        return told

    async def _prompt(self) -> None:
        answer = await self._send("message")
        if answer and answer["info"]["sessionID"] not in self._known.doomed:
            self._known.answers.append(answer)

    async def _prompt_async(self) -> None:
        await self._send("prompt_async")

    async def _keep(self) -> None:
        await self._send("message", noReply=True)

    async def _fork(self) -> None:
        session = await self._session()
        kept = [prompt for prompt in self._known.prompts if prompt[0] == session]
        made = session and session not in self._known.doomed and await self._client.post(f"/session/{session}/fork")
        if made:
            self._known.sessions[made["id"]] = len(kept)

    async def _delete(self) -> None:
        session = await self._session()
        if session is None or self._random.random() < 0.5:
            return
        self._known.doomed.add(session)
        if await self._client.delete(f"/session/{session}"):
            self._known.deleted.add(session)


async def work_until_killed(client: Client, seed: int, known: Acknowledged) -> None:
    crowd = [asyncio.create_task(Crowd(client, seed * 10 + number, known).work()) for number in range(4)]
    await asyncio.sleep(random.Random(seed).uniform(0.2, 1.2))
    for task in crowd:
        task.cancel()
    for outcome in await asyncio.gather(*crowd, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def idle(client: Client) -> None:
    async with asyncio.timeout(30):
        while await client.get("/session/status"):
            await asyncio.sleep(0.02)


async def check(client: Client, known: Acknowledged) -> None:
    await idle(client)
    for session in known.deleted:
        await client.get(f"/session/{session}", expect=404)
    messages = {
        session: await client.get(f"/session/{session}/message") for session in known.sessions if session not in known.doomed
    }
    for session, found in messages.items():
        assert_settled(found)
        ids = [message["info"]["id"] for message in found]
        assert len(set(ids)) == len(ids)
        assert len(found) >= known.sessions[session]
        assert_answered(found)
    for session, prompt in known.prompts:
        assert session in known.doomed or prompt in {message["info"]["id"] for message in messages[session]}
    for answer in known.answers:
        if answer["info"]["sessionID"] not in known.doomed:
            assert answer in messages[answer["info"]["sessionID"]]
    assert await client.get("/permission") == [] and await client.get("/question") == []


def assert_answered(messages: list[dict[str, Any]]) -> None:
    """An answer that has no error has an end; a call that was interrupted says so."""
    for message in messages:
        info = message["info"]
        if info["role"] == "assistant":
            assert "error" in info or "finish" in info, info
            assert all(tool["state"]["time"]["end"] for tool in tools(message))


async def check_next_prompts(client: Client, known: Acknowledged) -> None:
    for session in [session for session in known.sessions if session not in known.doomed][-5:]:
        answer = await client.post(f"/session/{session}/message", {"parts": [{"type": "text", "text": "And now?"}]})
        assert answer["info"]["role"] == "assistant" and "error" not in answer["info"], answer
        assert texts(answer)
        assert_settled(await client.get(f"/session/{session}/message"))


async def test_what_was_acknowledged_survives_being_killed(tmp_path: Path) -> None:
    servers, known = Servers(tmp_path), Acknowledged()
    for seed in range(KILLS):
        async with servers.start() as client:
            await check(client, known)
            await work_until_killed(client, seed, known)
    async with servers.start() as client:
        await check(client, known)
        await check_next_prompts(client, known)
    assert len(known.sessions) > 5 and len(known.prompts) > 10 and known.answers and known.deleted


async def test_an_interrupted_answer_is_closed_and_what_was_asked_is_still_asked(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    (servers.workspace / "opencode.json").write_text(json.dumps({"permission": {"bash": {"*": "allow", "touch *": "ask"}}}))
    servers.play([[say("Half an answer."), bash("echo shown; sleep 2")], [bash("touch asked.txt")]])
    async with servers.start() as client:
        cut, asking = [(await client.post("/session"))["id"] for _ in range(2)]
        await client.post(f"/session/{cut}/prompt_async", PROMPT)
        await condition(client, f"/session/{cut}/message", lambda found: "shown" in json.dumps(found))
        await client.post(f"/session/{asking}/prompt_async", PROMPT)
        (request,) = await condition(client, "/permission", bool)
    servers.play([[say("Went on.")], [say("Anew.")]])
    async with servers.start() as client:
        assert await client.get("/permission") == [request]
        assert list(await client.get("/session/status")) == [asking]
        await client.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await idle(client)
        assert (servers.workspace / "asked.txt").exists()
        asked = await client.get(f"/session/{asking}/message")
        assert texts(asked[-1]) == ["Went on."] and tools(asked)[0]["state"]["status"] == "completed"
        closed = await client.get(f"/session/{cut}/message")
        assert_settled(closed)
        assert closed[-1]["info"]["error"]["name"] == "UnknownError" and texts(closed[-1]) == ["Half an answer."]
        (tool,) = tools(closed)
        assert tool["state"]["error"] == "[Tool execution was interrupted]"
        assert texts(await client.post(f"/session/{cut}/message", PROMPT)) == ["Anew."]


async def condition(client: Client, path: str, holds: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(20):
        while not holds(found := await client.get(path)):
            await asyncio.sleep(0.02)
    return found
