"""A server that is told to stop lets turns finish, settles those that take too long, and tells its clients."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killable import Client, Servers
from processes import running_in
from turns import assert_settled, bash, say, texts, tools

Figure = Callable[[str], None]


async def listen(client: Client) -> list[dict[str, Any]]:
    """Everything announced until the stream ends by itself."""
    events = []
    async with client.http.stream("GET", "/event") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
    return events


async def stopped(client: Client, *signals_after: float) -> tuple[float, list[dict[str, Any]]]:
    """Seconds from the first signal to the end, and what a listener heard."""
    listening = asyncio.create_task(listen(client))
    await asyncio.sleep(0.2)  # the listener's connection is made
    began = time.monotonic()
    for wait in (0, *signals_after):
        await asyncio.sleep(wait)
        client.process.send_signal(signal.SIGTERM)
    await client.ended()
    return time.monotonic() - began, await listening


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
        took, events = await stopped(client)
        answer = await answering
    assert texts(answer) == ["It is done."] and (servers.workspace / "done.txt").exists()
    types = [event["type"] for event in events]
    assert "session.idle" in types and "server.instance.disposed" not in types
    assert 0.5 <= took < 6
    figure(f"a turn of 1 s finished, its client answered, listeners told; the server ended {took:.1f} s after SIGTERM")
    async with servers.start() as client:
        assert (await client.get(f"/session/{session}/message"))[-1] == answer


@pytest.mark.parametrize(("again", "patience"), [(False, "1"), (True, "60")])
async def test_a_turn_that_takes_too_long_is_settled(tmp_path: Path, figure: Figure, again: bool, patience: str) -> None:
    servers = Servers(tmp_path, OPENSESSION_SHUTDOWN_SECONDS=patience)
    servers.play([[say("I run it."), bash("trap '' TERM; echo shown; while :; do sleep 0.1; done")]])
    async with servers.start() as client:
        session, answering = await running(client, "shown")
        took, events = await stopped(client, *([0.5] if again else []))
        answer = await answering
    assert answer["info"]["error"]["name"] == "MessageAbortedError"
    assert tools(answer)[0]["state"]["status"] == "error"
    assert "session.idle" in [event["type"] for event in events]
    assert not running_in(servers.workspace)
    assert took < 5
    figure(f"{'SIGTERM twice' if again else 'patience of 1 s'}: aborted, settled, no process left, ended after {took:.1f} s")
    async with servers.start() as client:
        found = await client.get(f"/session/{session}/message")
        assert_settled(found)
        assert found[-1] == answer
