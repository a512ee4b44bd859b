"""A server that is told to stop lets turns finish, aborts those that take too long, and tells its clients."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from figures import Figure
from killable import PATIENCE, Client, Servers
from long_form import LONG, SLACK
from model_server import model_server
from processes import running_in
from sse_reader import EventReader
from turns import assert_finished, bash, say, texts, tools, until

CLIENTS = 30 if LONG else 10
ROUNDS = 6 if LONG else 1
TURN_SECONDS = 0.5


@asynccontextmanager
async def listening_to(client: Client) -> AsyncIterator[EventReader]:
    """Hears everything that is announced until the stream ends by itself."""
    async with client.http.stream("GET", "/event") as response:
        heard = EventReader(response)
        await heard.until("server.connected")
        yield heard
        await heard.until_ended()


async def stopped(client: Client, *signals_after: float) -> tuple[float, list[str]]:
    """Seconds from the first signal to the end, and what a listener heard of."""
    async with listening_to(client) as heard:
        began = time.monotonic()
        for wait in (0, *signals_after):
            await asyncio.sleep(wait)
            client.process.send_signal(signal.SIGTERM)
        await client.ended()
        took = time.monotonic() - began
    return took, heard.types


async def running(client: Client, shown: str) -> tuple[str, asyncio.Task[Any]]:
    session = await client.session()
    answering = asyncio.create_task(client.prompt(session))
    await client.condition(f"/session/{session}/message", lambda found: shown in json.dumps(found))
    return session, answering


async def test_a_turn_may_finish_and_clients_are_told(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path)
    servers.play([[say("I run it."), bash("echo shown; sleep 1; echo done > done.txt")], [say("It is done.")]])
    async with servers.start() as client:
        session, answering = await running(client, "shown")
        took, heard = await stopped(client)
        answer = await answering
    assert texts(answer) == ["It is done."] and (servers.workspace / "done.txt").exists()
    assert "session.idle" in heard and "server.instance.disposed" not in heard
    assert 0.5 <= took < 6 * SLACK
    figure(f"a turn of 1 s finished, its client answered, listeners told; the server ended {took:.1f} s after SIGTERM")
    async with servers.start() as client:
        assert (await client.get(f"/session/{session}/message"))[-1] == answer


@pytest.mark.parametrize(("again", "patience"), [(False, "1"), (True, "60")])
async def test_a_turn_that_takes_too_long_is_aborted_and_finished(
    tmp_path: Path, figure: Figure, again: bool, patience: str
) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS=patience)
    servers.play([[say("I run it."), bash("trap '' TERM; echo shown; while :; do sleep 0.1; done")]])
    async with servers.start() as client:
        session, answering = await running(client, "shown")
        took, heard = await stopped(client, *([0.5] if again else []))
        answer = await answering
    assert answer["info"]["error"]["name"] == "MessageAbortedError"
    assert tools(answer)[0]["state"]["status"] == "error" and "session.idle" in heard
    assert not running_in(servers.workspace)
    assert took < 5 * SLACK
    figure(f"{'SIGTERM twice' if again else 'patience of 1 s'}: aborted, finished, no process left, ended after {took:.1f} s")
    async with servers.start() as client:
        found = await client.get(f"/session/{session}/message")
        assert_finished(found)
        assert found[-1] == answer


@dataclass
class Prompts:
    """What became of the prompts of one client, by their text. `broken`: the connection ended without an answer."""

    answered: dict[str, Any] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    refused: dict[str, httpx2.Response] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    not_connected: list[str] = field(default_factory=list)


async def prompt_until_refused(url: str, session: str, path: str, prompts: Prompts) -> None:
    """On one connection, for as long as the server keeps it."""
    async with httpx2.AsyncClient(base_url=url, timeout=30, limits=httpx2.Limits(max_connections=1)) as http:
        while not (prompts.refused or prompts.broken or prompts.not_connected):
            text = f"{session} {len(prompts.answered) + len(prompts.accepted)}"
            body = {"parts": [{"type": "text", "text": text}]}
            try:
                response = await http.post(f"/session/{session}/{path}", json=body)
            except httpx2.ConnectError:
                prompts.not_connected.append(text)
            except httpx2.HTTPError:
                prompts.broken.append(text)
            else:
                if response.status_code == 503:
                    prompts.refused[text] = response
                elif response.status_code == 204:
                    prompts.accepted.append(text)
                else:
                    prompts.answered[text] = response.json()
                await asyncio.sleep(TURN_SECONDS / 4 if path == "prompt_async" else 0)


async def test_prompts_in_a_loop_while_the_server_stops(tmp_path: Path, figure: Figure) -> None:
    """Those that were accepted are answered, those that were refused were not stored, and the server ends with its last turn."""
    servers = Servers(tmp_path)
    servers.play([[say("answer " * 10, chunks=10, delay=TURN_SECONDS / 10)]] * 200 * CLIENTS)
    taken = refused = broken = lost = 0
    slowest = 0.0
    for number in range(ROUNDS):
        async with servers.start() as client:
            url = str(client.http.base_url)
            sessions = {await client.session(): Prompts() for _ in range(CLIENTS)}
            loops = [
                asyncio.create_task(prompt_until_refused(url, session, ("message", "prompt_async")[at % 2], prompts))
                for at, (session, prompts) in enumerate(sessions.items())
            ]
            await asyncio.sleep(6 * TURN_SECONDS + number * 0.07)  # turns are running, at another point of theirs each time
            async with asyncio.timeout(PATIENCE):
                while not any(prompts.answered or prompts.accepted for prompts in sessions.values()):
                    await asyncio.sleep(0.01)
            began = time.monotonic()
            client.process.send_signal(signal.SIGTERM)
            await client.ended()
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.gather(*loops)
        async with servers.start() as client:
            for session, prompts in sessions.items():
                lost += await missing(client, session, prompts)
                for response in prompts.refused.values():
                    assert "retry-after" in response.headers and response.headers["connection"] == "close"
        taken += sum(len(prompts.answered) + len(prompts.accepted) for prompts in sessions.values())
        refused += sum(len(prompts.refused) for prompts in sessions.values())
        broken += sum(len(prompts.broken) for prompts in sessions.values())
    figure(
        f"{CLIENTS} clients in a loop, {ROUNDS} restarts: {taken} prompts accepted, {lost} of them lost or aborted, "
        f"{refused} refused with 503, {broken} connections broken; the slowest ended {slowest:.1f} s after SIGTERM"
    )
    assert lost == 0 and broken == 0 and taken and refused
    assert slowest < 2 * TURN_SECONDS + 2 * SLACK


async def missing(client: Client, session: str, prompts: Prompts) -> int:
    """How many accepted prompts are not stored, or have no whole answer; none may be stored that was refused."""
    messages = await client.get(f"/session/{session}/message")
    stored = {texts(message)[0] for message in messages if message["info"]["role"] == "user"}
    assert not stored & {*prompts.refused, *prompts.not_connected}
    whole = {answer["info"]["id"]: answer for answer in messages if "error" not in answer["info"]}
    lost = sum(whole.get(answer["info"]["id"]) != answer for answer in prompts.answered.values())
    unstored = {*prompts.answered, *prompts.accepted} - stored
    return lost + len(unstored) + bool(prompts.accepted and "error" in messages[-1]["info"])


async def test_a_server_that_stops_serves_what_a_waiting_turn_needs(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS="20")
    servers.configure({"permission": {"bash": "ask"}})
    servers.play([[bash("echo allowed > done.txt")], [say("It is done.")]])
    async with servers.start() as client:
        session = await client.session()
        answering = asyncio.create_task(client.prompt(session))
        [asked] = await client.condition("/permission", bool)
        async with listening_to(client) as heard:
            client.process.send_signal(signal.SIGTERM)
            health = await stopping(client)
            assert health.json()["healthy"] is False and health.json()["reason"]
            for response in await refusals(client, session):
                assert response.status_code == 503 and int(response.headers["retry-after"]) > 0
                assert response.headers["connection"] == "close" and "not" in response.json()["data"]["message"].lower()
            read = await client.http.get(f"/session/{session}/message")
            assert read.status_code == 200 and read.headers["connection"] == "close"
            began = time.monotonic()
            await client.post(f"/permission/{asked['id']}/reply", {"reply": "once"})
            answer = await answering
        await client.ended()
        took = time.monotonic() - began
    assert texts(answer) == ["It is done."] and (servers.workspace / "done.txt").exists()
    assert "session.idle" in heard.types, "a title may come later"
    assert took < 5 * SLACK
    figure(f"a permission was answered after SIGTERM, and the turn with it; the server ended {took:.1f} s later")
    async with servers.start() as client:
        assert [session["id"] for session in await client.get("/session")] == [session]
        messages = await client.get(f"/session/{session}/message")
        assert len(messages) == 3 and messages[-1] == answer


async def stopping(client: Client) -> httpx2.Response:
    """The health check, once it tells that the server is stopping."""
    async with asyncio.timeout(10):
        while (health := await client.http.get("/global/health")).status_code == 200:
            await asyncio.sleep(0.01)
    assert health.status_code == 503
    return health


async def refusals(client: Client, session: str) -> list[httpx2.Response]:
    """Of requests that would start or change work."""
    prompt, path = {"parts": [{"type": "text", "text": "x" * 3_000_000}]}, f"/session/{session}"
    posted = {
        "/session": {},
        f"{path}/message": prompt,
        f"{path}/prompt_async": prompt,
        f"{path}/fork": {},
        f"{path}/shell": {"agent": "build", "command": "true"},
    }
    changed = [await client.http.patch(path, json={"title": "Other"}), await client.http.delete(path)]
    return [*[await client.http.post(path, json=body) for path, body in posted.items()], *changed]


async def test_idle_connections_are_closed_while_a_turn_runs(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS="60")
    servers.play([[say("I run it."), bash("echo shown; until [ -e go ]; do sleep 0.05; done")], [say("It is done.")]])
    async with servers.start() as client:
        _, answering = await running(client, "shown")
        reader, writer = await asyncio.open_connection("127.0.0.1", client.http.base_url.port)
        writer.write(b"GET /global/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in await reader.readline()
        client.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        await asyncio.wait_for(reader.read(), 5 * SLACK)
        took = time.monotonic() - began
        assert not answering.done()
        (servers.workspace / "go").touch()
        assert texts(await answering) == ["It is done."]
        writer.close()
    figure(f"an idle connection was closed {took:.1f} s after SIGTERM, while the turn went on")


async def test_a_title_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    servers, gate = Servers(tmp_path), threading.Event()
    with model_server() as model:
        servers.configure(model.config())
        model.title = [gate, model.TITLE]
        async with servers.start() as client:
            session = await client.session()
            assert texts(await client.prompt(session)) == ["ok"]
            await until(lambda: model.title_requests)
            client.process.send_signal(signal.SIGTERM)
            await stopping(client)
            gate.set()
            await client.ended()
        async with servers.start() as client:
            assert (await client.get(f"/session/{session}"))["title"] == model.TITLE
    assert len(model.title_requests) == 1 and "Traceback" not in servers.log


async def test_what_is_not_done_when_the_server_stops_is_answered_and_leaves_no_traceback(tmp_path: Path) -> None:
    async def silent(*_: Any) -> None:
        await asyncio.sleep(PATIENCE)

    servers = Servers(tmp_path, OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES="true", OPENSESSION_SHUTDOWN_SECONDS="1")
    receiver = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with servers.start() as client:
        url = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
        webhook = await client.post("/webhook", {"url": url, "events": ["session.idle"]})
        testing = asyncio.create_task(client.http.post(f"/webhook/{webhook['id']}/test"))
        await asyncio.sleep(0.5)
        client.process.send_signal(signal.SIGTERM)
        cut_off = await testing
        await client.ended()
    receiver.close()
    assert (cut_off.status_code, cut_off.json()["name"]) == (503, "ServerStoppingError") and cut_off.headers["retry-after"]
    assert "Traceback" not in servers.log
