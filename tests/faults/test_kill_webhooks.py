"""A server that is killed (-9) while it delivers webhooks, and started again: the receiver has every event, in order."""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figure
from killable import PATIENCE, Servers
from long_form import LONG
from turns import bash, say
from webhook_receiver import Received, Receiver, webhook_receiver

KILLS = 12 if LONG else 3
EVENTS_APART = 7
"""Between two kills."""
WANTED = ("session.", "message.")


def turns(count: int) -> list[list[dict[str, Any]]]:
    turn = [[say("I run it."), bash("echo worked")], [say("It worked.", chunks=4)]]
    return [step for _ in range(count) for step in turn]


def first_seen(received: list[Received]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in received:
        assert found.setdefault(each.id, each.body) == each.body, "an attempt has the body of the first"
    return list(found.values())


def journal(data: Path) -> list[tuple[str, Any]]:
    with sqlite3.connect(data / "opensession.db") as connection:
        events = [json.loads(payload) for (payload,) in connection.execute("SELECT payload FROM event_journal ORDER BY seq")]
    return [(event["type"], event["properties"]) for event in events if event["type"].startswith(WANTED)]


async def test_a_killed_server_loses_no_event_of_a_webhook(tmp_path: Path, figure: Figure) -> None:
    servers = Servers(tmp_path, OPENSESSION_WEBHOOK_PRIVATE_ADDRESSES="true")
    servers.play(turns(40))
    with webhook_receiver() as receiver:
        for _ in range(KILLS):
            await started_and_killed(servers, receiver)
        receiver.status = lambda received: 204
        async with servers.start() as client:
            await client.idle()
            await asyncio.wait_for(all_delivered(servers, receiver), PATIENCE)
        assert [(body["type"], body["data"]) for body in first_seen(receiver.received)] == journal(servers.data)
        assert receiver.unverified == []
        total, different = len(receiver.received), len(first_seen(receiver.received))
    figure(f"{KILLS} kills while events were delivered: {different} events, 0 lost, {total - different} sent twice")


async def started_and_killed(servers: Servers, receiver: Receiver) -> None:
    """What it has to do: what is left of the turn before it, and a new one."""
    async with servers.start() as client:
        if not receiver.secret:
            hook = await client.post("/webhook", {"url": receiver.url, "events": ["session.*", "message.*"]})
            receiver.secret = hook["secret"]
        receiver.status = killing(receiver, client.process.pid)
        if session := await client.post("/session", {"title": "T"}):
            await client.prompt(session["id"], path="prompt_async")
        await client.ended()


def killing(receiver: Receiver, process: int) -> Callable[[Received], int]:
    """Kills the server before it hears that one of the next events was accepted."""
    last = len(receiver.received) + EVENTS_APART

    def status(received: Received) -> int:
        if len(receiver.received) + 1 >= last:
            os.kill(process, signal.SIGKILL)
        return 204

    return status


async def all_delivered(servers: Servers, receiver: Receiver) -> None:
    while len(first_seen(list(receiver.received))) < len(journal(servers.data)):
        await asyncio.sleep(0.1)
