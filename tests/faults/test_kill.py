"""A server that is killed (-9) at random moments of turns, tools, forks and deletes, and started again: what it acknowledged is
there, what it had not finished is closed or answered, nothing runs twice or goes on, and every session takes the next prompt."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from figures import Figure
from killable import PATIENCE, Client, Servers
from long_form import LONG, SLACK
from model_server import ModelServer, model_server
from processes import running_in
from turns import assert_finished, bash, call, say, texts, tools

from app.util import processes

KILLS = 30 if LONG else 2
RECOVERED_WITHIN = 5.0 * SLACK


def script(kill: int) -> list[list[dict[str, Any]]]:
    """Every command has a name of its own, so that one which ran twice would show."""

    def turns(number: int) -> list[list[dict[str, Any]]]:
        log = f"echo {kill}.{number} >> log.txt"
        return [
            [say("A text that takes its time.", chunks=20, delay=0.01)],
            [say("I run it."), bash(f"{log}; sleep 0.2; echo worked")],
            [{"reasoning": "Hm.", "chunks": 3, "delay": 0.01}, say("And so on.", chunks=5, delay=0.01)],
            [bash("setsid sleep 50 & trap '' TERM; sleep 0.1", "c1"), call("read", "c2", filePath="a.txt")],
            [{"status": 429, "headers": {"retry-after-ms": "50"}, "message": "slow down"}],
            [say("In the end.")],
        ]

    return [turn for number in range(40) for turn in turns(number)]


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

    @property
    def is_enough(self) -> bool:
        """Some of each kind, so that there is something to lose."""
        return bool(len(self.sessions) > 5 and len(self.prompts) > 5 and self.answers and self.deleted)


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
        response = session and await self._client.post(f"/session/{session}/{path}", body)
        if response and session not in self._known.doomed:
            self._known.prompts.append((str(session), body["messageID"]))
        return response

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
    async with asyncio.timeout(PATIENCE):
        while not known.is_enough:
            await asyncio.sleep(0.01)
    for task in crowd:
        task.cancel()
    for outcome in await asyncio.gather(*crowd, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def check(client: Client, known: Acknowledged) -> None:
    for session in known.deleted:
        await client.get(f"/session/{session}", expect=404)
    messages = {
        session: await client.get(f"/session/{session}/message") for session in known.sessions if session not in known.doomed
    }
    for session, found in messages.items():
        assert_finished(found)
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


async def check_next_prompts(client: Client, known: Acknowledged, model: ModelServer) -> int:
    """Each gets its answer; returns how many calls the model was told of, each with a result."""
    pairs = 0
    for session in [session for session in known.sessions if session not in known.doomed][-40:]:
        answer = await client.prompt(session, "And now?", model={"providerID": "fake", "modelID": "main"})
        assert answer["info"]["role"] == "assistant" and "error" not in answer["info"], answer
        assert texts(answer)
        assert_finished(await client.get(f"/session/{session}/message"))
        pairs += paired(model.requests[-1]["messages"])
    return pairs


def paired(messages: list[dict[str, Any]]) -> int:
    """Fails unless every call in a request has exactly one result, which comes after it."""
    open_calls: Counter[str] = Counter()
    count = 0
    for message in messages:
        if message["role"] == "tool":
            open_calls.subtract([message["tool_call_id"]])
            assert open_calls[message["tool_call_id"]] == 0, messages
        else:
            assert not +open_calls, messages
        calls = [call["id"] for call in message.get("tool_calls", [])]
        open_calls.update(calls)
        count += len(calls)
    assert not +open_calls, messages
    return count


async def recovered(client: Client, servers: Servers) -> float:
    """Seconds until nothing is busy; what the killed server ran is gone by then."""
    began = time.monotonic()
    assert not left_behind(client, servers)
    await client.idle()
    return time.monotonic() - began


def left_behind(client: Client, servers: Servers) -> list[str]:
    """Commands of servers that are gone. What this one has just begun is not marked yet, but is its child; what has ended
    since it was found, as its git does in milliseconds, is nobody's child any more."""
    found = {pid: mark_of(pid) for pid in running_in(servers.workspace)}
    server = psutil.Process(client.process.pid)
    own = {process.pid for process in (server, *server.children(recursive=True))}
    others = {pid: mark for pid, mark in found.items() if pid not in own and f":{client.process.pid}:" not in (mark or "")}
    return [f"{pid}: {mark}" for pid, mark in others.items() if mark is not None and mark_of(pid) is not None]


def mark_of(pid: int) -> str | None:
    """None of a process that has ended meanwhile."""
    try:
        return psutil.Process(pid).environ().get(processes.VARIABLE, "")
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return None


def check_commands(servers: Servers) -> int:
    """How many ran, each once."""
    log = servers.workspace / "log.txt"
    ran = Counter(log.read_text().split()) if log.exists() else Counter()
    assert not [name for name, count in ran.items() if count > 1], ran
    return len(ran)


async def test_what_was_acknowledged_survives_being_killed(tmp_path: Path, figure: Figure) -> None:
    servers, known, slowest = Servers(tmp_path), Acknowledged(), 0.0
    for kill in range(KILLS):
        servers.play(script(kill))
        async with servers.start() as client:
            slowest = max(slowest, await recovered(client, servers))
            await check(client, known)
            await work_until_killed(client, kill, known)
    servers.play(script(KILLS))
    with model_server() as model:
        servers.configure(model.config())
        async with servers.start() as client:
            slowest = max(slowest, await recovered(client, servers))
            await check(client, known)
            pairs = await check_next_prompts(client, known, model)
    commands = check_commands(servers)
    assert slowest < RECOVERED_WITHIN
    assert known.is_enough and commands > 2
    figure(
        f"{KILLS} kills: of {len(known.sessions)} sessions, {len(known.prompts)} prompts, {len(known.answers)} answers and "
        f"{len(known.deleted)} deletes acknowledged 0 lost; {commands} commands, 0 twice, 0 left running; {pairs} calls, each "
        f"with a result; all idle {slowest:.1f} s after a restart at the most"
    )


async def test_a_server_that_starts_with_a_broken_configuration_answers_what_was_left_with_the_error(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.configure({"permission": {"bash": "ask"}})
    servers.play([[bash("ls")], [say("Done.")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, path="prompt_async")
        await client.condition("/permission", bool)
    (servers.workspace / "opencode.json").write_text("{")
    async with servers.start() as client:
        await client.idle()
        messages = await client.get(f"/session/{session}/message")
        assert_finished(messages)
        assert "opencode.json" in messages[-1]["info"]["error"]["data"]["message"]
        assert (await client.get("/permission")) == []
        servers.configure({})
        assert (await client.prompt(session))["info"].get("error") is None
    assert "Traceback" not in servers.log
    assert [line for line in servers.log.splitlines() if "opencode.json:1" in line] != []
