"""A server that is killed (-9) at random moments of turns, tools, forks, deletes, reverts and deliveries, and started again: what
it acknowledged is there, what it had not finished is closed or answered, nothing runs twice or goes on, and every session takes
the next prompt."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from at_terminal import at_terminal
from figures import Figure
from killable import Client, Servers
from long_form import LONG, SLACK
from model_server import ModelServer, model_server
from postgres import PostgresServer, migrated
from processes import running_in
from turns import assert_finished, bash, call, say, texts, tools, until
from webhook_receiver import Received, Receiver, webhook_receiver

from app.util import processes

KILLS = 30 if LONG else 2
RECOVERED_WITHIN = 5.0 * SLACK


def script(kill: int) -> list[list[dict[str, Any]]]:
    """Every command has a name of its own, so that one which ran twice would show."""
    return [
        turn
        for number in range(40)
        for turn in (
            [say("A text that takes its time.", chunks=20, delay=0.01)],
            [say("I run it."), bash(f"echo {kill}.{number} >> log.txt; sleep 0.2; echo worked")],
            [{"reasoning": "Hm.", "chunks": 3, "delay": 0.01}, say("And so on.", chunks=5, delay=0.01)],
            [bash("setsid sleep 50 & trap '' TERM; sleep 0.1", "c1"), call("read", "c2", filePath="a.txt")],
            [{"status": 429, "headers": {"retry-after-ms": "50"}, "message": "slow down"}],
            [say("In the end.")],
        )
    ]


@dataclass
class Acknowledged:
    """What clients were told is so. `sessions`: with how many messages at least, as a fork's are there from its beginning.
    `doomed`: their deletion was asked for; whether it happened, nobody was told."""

    sessions: dict[str, int] = field(default_factory=dict)
    prompts: list[tuple[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)

    @property
    def is_enough(self) -> bool:
        """Some of each kind, so that there is something to lose."""
        return bool(len(self.sessions) > 5 and len(self.prompts) > 5 and self.answers and self.deleted)

    @property
    def kept(self) -> list[str]:
        return [session for session in self.sessions if session not in self.doomed]


class Crowd:
    """A client that does random things until the server is gone."""

    def __init__(self, client: Client, seed: int, known: Acknowledged) -> None:
        self._client, self._known, self._random = client, known, random.Random(seed)

    async def work(self) -> None:
        prompt = [self._prompt, self._prompt, self._prompt_async, self._keep]
        while True:
            await self._random.choice([*prompt, self._fork, self._delete])()
            await asyncio.sleep(self._random.random() * 0.02)

    async def _session(self) -> str | None:
        if self._known.kept and self._random.random() < 0.6:
            return self._random.choice(self._known.kept)
        made = await self._client.post("/session")
        if made is not None:
            self._known.sessions[made["id"]] = 0
        return made and str(made["id"])

    async def _send(self, path: str, **fields: Any) -> Any:
        session, message_id = await self._session(), f"msg_{self._random.getrandbits(64):x}"
        response = session and await self._client.prompt(session, f"Prompt {message_id}", path, messageID=message_id, **fields)
        if response and session not in self._known.doomed:
            self._known.prompts.append((str(session), message_id))
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
        if session is not None and self._random.random() >= 0.5:
            self._known.doomed.add(session)
            if await self._client.delete(f"/session/{session}"):
                self._known.deleted.add(session)


async def work_until_killed(client: Client, seed: int, known: Acknowledged) -> None:
    crowd = [asyncio.create_task(Crowd(client, seed * 10 + number, known).work()) for number in range(4)]
    await asyncio.sleep(random.Random(seed).uniform(0.2, 1.2))
    await until(lambda: known.is_enough)
    for task in crowd:
        task.cancel()
    for outcome in await asyncio.gather(*crowd, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def check(client: Client, known: Acknowledged) -> None:
    for session in known.deleted:
        await client.get(f"/session/{session}", expect=404)
    stored = {session: await client.get(f"/session/{session}/message") for session in known.kept}
    for session, found in stored.items():
        assert_finished(found)
        assert len({message["info"]["id"] for message in found}) == len(found) >= known.sessions[session]
        for message in found:  # an answer that has no error has an end; a call that was interrupted says so
            if message["info"]["role"] == "assistant":
                assert "error" in message["info"] or "finish" in message["info"], message["info"]
                assert all(tool["state"]["time"]["end"] for tool in tools(message))
    for session, prompt in known.prompts:
        assert session in known.doomed or prompt in {message["info"]["id"] for message in stored[session]}
    for answer in known.answers:
        assert answer["info"]["sessionID"] in known.doomed or answer in stored[answer["info"]["sessionID"]]
    assert await client.get("/permission") == [] and await client.get("/question") == []


async def check_next_prompts(client: Client, known: Acknowledged, model: ModelServer) -> int:
    """Each gets its answer; returns how many calls the model was told of, each with a result."""
    pairs = 0
    for session in known.kept[-40:]:
        answer = await client.prompt(session, "And now?", model={"providerID": "fake", "modelID": "main"})
        assert answer["info"]["role"] == "assistant" and "error" not in answer["info"], answer
        assert texts(answer)
        assert_finished(await client.get(f"/session/{session}/message"))
        pairs += paired(model.requests[-1]["messages"])
    return pairs


def paired(messages: list[dict[str, Any]]) -> int:
    """Fails unless every call in a request has exactly one result, which comes after it."""
    open_calls, count = Counter[str](), 0
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
    commands = Counter((servers.workspace / "log.txt").read_text().split())
    assert slowest < RECOVERED_WITHIN
    assert known.is_enough and len(commands) > 2 and max(commands.values()) == 1, commands
    figure(
        f"{KILLS} kills: of {len(known.sessions)} sessions, {len(known.prompts)} prompts, {len(known.answers)} answers and "
        f"{len(known.deleted)} deletes acknowledged 0 lost; {len(commands)} commands, 0 twice, 0 left running; {pairs} calls, "
        f"each with a result; all idle {slowest:.1f} s after a restart at the most"
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


# A server on PostgreSQL, followed at once by another, which has its heartbeat alone to go by.

STALE_WITHIN = 9.0
LOOKED_WITHIN = 3.0 * SLACK
"""Of a start that takes longer than it takes a lease to be stale."""


async def test_what_a_killed_server_on_postgresql_left_is_recovered_when_its_leases_are_stale(
    tmp_path: Path, postgres: PostgresServer, figure: Figure
) -> None:
    servers = Servers(tmp_path, OPENSESSION_DATABASE_URL=migrated(postgres))
    servers.configure({"permission": {"bash": {"*": "allow", "make *": "ask"}}})
    servers.play([[bash("echo ran >> log.txt; echo sh''own; sleep 60")], [bash("make asked")]])
    async with servers.start() as client:
        cut, asking = [await client.session() for _ in range(2)]
        await client.prompt(cut, path="prompt_async")
        await client.condition(f"/session/{cut}/message", lambda found: "shown" in str(found))
        await client.prompt(asking, path="prompt_async")
        (request,) = await client.condition("/permission", bool)
    killed = time.monotonic()
    servers.play([[say("Anew.")], [say("Went on.")]])
    async with servers.start() as client:
        answers = time.monotonic() - killed
        assert await client.get("/permission") == [request]
        await client.condition(f"/session/{cut}/message", lambda found: texts(found[-1]) == ["Anew."])
        await client.condition("/session/status", lambda found: list(found) == [asking])
        took = time.monotonic() - killed
        assert took < max(STALE_WITHIN, answers + LOOKED_WITHIN)
        await client.post(f"/permission/{request['id']}/reply", {"reply": "once"})
        await client.idle()
        of_cut, of_asking = [await client.get(f"/session/{session}/message") for session in (cut, asking)]
        assert_finished([*of_cut, *of_asking])
        assert texts(of_asking[-1]) == ["Went on."]
        assert tools(of_cut)[0]["state"]["error"] == "[Tool execution was interrupted]"
        assert (servers.workspace / "log.txt").read_text().split() == ["ran"]
        assert await client.get("/permission") == []
    figure(f"gone on with, and asked again, {took:.1f} s after the kill; the next server answered after {answers:.1f} s")


# Reverts.

FILES = 800
REVERT_KILLS = 12 if LONG else 2
CHANGED = {f"f{number}.txt": f"changed {number}\n" for number in range(FILES)}


def files(workspace: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in workspace.glob("f*.txt")}


async def revert_and_kill(servers: Servers, client: Client, path: str, body: dict[str, str]) -> int:
    """Kills the server when about half of the files are put back; returns how many hold the original by then."""
    halfway = servers.workspace / "f400.txt"
    before, asked = halfway.read_text(), asyncio.create_task(client.post(path, body))
    async with asyncio.timeout(30):
        while halfway.read_text() == before:
            assert not asked.done()
            await asyncio.sleep(0.001)
    os.kill(client.process.pid, signal.SIGKILL)
    assert await asked is None
    return sum(text.startswith("original") for text in files(servers.workspace).values())


async def test_a_revert_that_was_cut_off_is_undone(tmp_path: Path, figure: Figure) -> None:
    servers, half_done = Servers(tmp_path), list[int]()
    servers.configure({"permission": {"external_directory": "allow"}})
    make, change = (bash(f"for i in $(seq 0 {FILES - 1}); do echo {word} $i > f$i.txt; done") for word in ("original", "changed"))
    servers.play([[make], [say("Made.")], [change], [say("Changed.")]])
    async with servers.start() as client:
        session = await client.session()
        await client.prompt(session, "Make")
        prompt = {"messageID": (await client.prompt(session, "Change"))["info"]["parentID"]}
    assert files(servers.workspace) == CHANGED
    for kill in range(REVERT_KILLS):
        path = f"/session/{session}"
        async with servers.start() as client:
            if kill % 2:  # unrevert, from a whole revert
                assert (await client.post(f"{path}/revert", prompt))["revert"]
            way = (f"{path}/unrevert", {}) if kill % 2 else (f"{path}/revert", prompt)
            half_done.append(await revert_and_kill(servers, client, *way))
        async with servers.start() as client:  # which waits some seconds for it, and goes on then
            await client.condition(path, lambda found: "revert" not in found)
            assert files(servers.workspace) == CHANGED
    assert any(0 < count < FILES for count in half_done), half_done
    figure(f"{REVERT_KILLS} kills with {half_done} of {FILES} files put back: each undone, all files as before")


# Terminals.

MEEK = "sleep 1000 & sleep 1000"
STUBBORN = "trap '' HUP TERM; setsid sleep 1000 & nohup sleep 1000 & sleep 1000"


async def opened(client: Client, script: str, processes: int, work: Path) -> str:
    """A terminal, once its processes run. bubblewrap and its first process are counted where there is a sandbox."""
    made = await client.post("/pty", {"command": "bash", "args": ["-c", f"cd {work}; {script}"]})
    await until(lambda: len(running_in(work)) >= processes, "the terminal's processes")
    return str(made["id"])


async def test_what_runs_in_terminals_of_a_killed_server_ends(tmp_path: Path, figure: Figure) -> None:
    """The kernel hangs the terminals up. What ignores that ends with the sandbox, or when the next server starts."""
    servers = Servers(tmp_path, OPENSESSION_SANDBOX="off")
    work = servers.workspace / "work"
    work.mkdir()
    async with servers.start() as client:
        await opened(client, MEEK, 3, work)
        os.kill(client.process.pid, signal.SIGKILL)
        began = time.monotonic()
        await until(lambda: not running_in(work), "the end of all processes")
        hung_up = time.monotonic() - began
    async with servers.start() as client:
        await opened(client, STUBBORN, 4, work)
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait()
        assert running_in(work), "they heed no hangup"
    async with servers.start() as client:
        assert running_in(work) == []
        assert await client.get("/pty") == []
    figure(f"a server with terminals was killed: 0 processes left after {hung_up:.2f} s, stubborn ones 0 at the next start")


async def test_a_server_that_is_told_to_stop_ends_what_runs_in_terminals(tmp_path: Path) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS="1")
    work = servers.workspace / "work"
    work.mkdir()
    async with servers.start() as client:
        pty_id, port = await opened(client, STUBBORN, 4, work), client.http.base_url.port
        assert port is not None
        async with at_terminal(port, pty_id) as connected:
            await connected.until_told()
            client.process.terminate()
            assert await connected.until_closed() == 1000
        assert await client.ended(60) == -signal.SIGTERM
        assert running_in(work) == []
    assert "Traceback" not in servers.log and "ERROR" not in servers.log, servers.log


# Webhooks.

WEBHOOK_KILLS = 12 if LONG else 3
EVENTS_APART = 7
"""Between two kills."""


def first_seen(received: list[Received]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in received:
        assert found.setdefault(each.id, each.body) == each.body, "an attempt has the body of the first"
    return list(found.values())


def journal(data: Path) -> list[tuple[str, Any]]:
    with sqlite3.connect(data / "opensession.db") as connection:
        events = [json.loads(payload) for (payload,) in connection.execute("SELECT payload FROM event_journal ORDER BY seq")]
    return [(event["type"], event["properties"]) for event in events if event["type"].startswith(("session.", "message."))]


async def test_a_killed_server_loses_no_event_of_a_webhook(tmp_path: Path, figure: Figure) -> None:
    """What each server has to do: what is left of the turn before it, and a new one."""
    servers = Servers(tmp_path, OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES="true")
    servers.play([[say("I run it."), bash("echo worked")], [say("It worked.", chunks=4)]] * 40)
    with webhook_receiver() as receiver:
        for _ in range(WEBHOOK_KILLS):
            async with servers.start() as client:
                if not receiver.secret:
                    wanted = {"url": receiver.url, "events": ["session.*", "message.*"]}
                    receiver.secret = (await client.post("/webhook", wanted))["secret"]
                receiver.status = killing(receiver, client.process.pid)
                if session := await client.post("/session", {"title": "T"}):
                    await client.prompt(session["id"], path="prompt_async")
                await client.ended()
        receiver.status = lambda received: 204
        async with servers.start() as client:
            await client.idle()
            await until(lambda: len(first_seen(list(receiver.received))) >= len(journal(servers.data)))
        assert [(body["type"], body["data"]) for body in first_seen(receiver.received)] == journal(servers.data)
        assert receiver.unverified == []
        total, different = len(receiver.received), len(first_seen(receiver.received))
    figure(f"{WEBHOOK_KILLS} kills while events were delivered: {different} events, 0 lost, {total - different} sent twice")


def killing(receiver: Receiver, process: int) -> Callable[[Received], int]:
    """Kills the server before it hears that one of the next events was accepted."""
    last = len(receiver.received) + EVENTS_APART

    def status(received: Received) -> int:
        if len(receiver.received) + 1 >= last:
            os.kill(process, signal.SIGKILL)
        return 204

    return status
