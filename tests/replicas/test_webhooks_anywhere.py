"""Webhooks of several servers: whichever runs a session, one of them delivers; when that one dies another goes on."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from figures import Figure
from killable import Client
from long_form import SLACK
from replica_turns import new_session
from replicas import Replicas
from webhook_receiver import Receiver

SESSIONS = 12
TAKEN_OVER_WITHIN = 10.0 * SLACK


async def hook(client: Client, receiver: Receiver, *events: str) -> str:
    made = await client.post("/webhook", {"url": receiver.url, "events": list(events)})
    receiver.secret = made["secret"]
    return str(made["id"])


def created(replicas: Replicas, after: int) -> list[str]:
    return [event["properties"]["info"]["id"] for _, event in replicas.journal(after) if event["type"] == "session.created"]


def told(receiver: Receiver) -> list[str]:
    return [each.data["info"]["id"] for each in list(receiver.received)]


async def all_told(replicas: Replicas, receiver: Receiver, after: int) -> None:
    wanted = created(replicas, after)
    await asyncio.to_thread(receiver.wait, lambda received: len({each.id for each in received}) >= len(wanted))


async def is_told_of_another(client: Client, receiver: Receiver) -> bool:
    """The server that delivers hears within a second that the webhook is gone."""
    before = len(receiver.received)
    await new_session(client)
    await asyncio.sleep(1.0)
    return len(receiver.received) > before


async def claimed_by(replicas: Replicas, webhook_id: str) -> str:
    """The replica that delivers it, by name."""
    [(server,)] = replicas.rows("SELECT server FROM webhook WHERE id = %s", webhook_id)
    [(address,)] = replicas.rows("SELECT address FROM replica WHERE id = %s", server)
    return next(replica.name for replica in replicas.all if str(address).endswith(f":{replica.port}"))


async def test_each_event_is_delivered_once_whoever_made_it(
    replicas: Replicas, clients: list[Client], receiver: Receiver
) -> None:
    after = replicas.head()
    webhook_id = await hook(clients[0], receiver, "session.created")
    for number in range(SESSIONS):
        await new_session(clients[number % 3])
    await all_told(replicas, receiver, after)
    assert told(receiver) == created(replicas, after) and receiver.unverified == []
    assert await clients[1].delete(f"/webhook/{webhook_id}")
    async with asyncio.timeout(60):
        while await is_told_of_another(clients[2], receiver):
            pass


async def test_another_server_goes_on_when_the_one_that_delivers_is_killed(
    replicas: Replicas, clients: list[Client], receiver: Receiver, figure: Figure
) -> None:
    if len(replicas.all) < 2:
        pytest.skip("there is no other")
    after = replicas.head()
    webhook_id = await hook(clients[0], receiver, "session.created")
    await new_session(clients[1])
    await all_told(replicas, receiver, after)
    name = await claimed_by(replicas, webhook_id)
    [dead] = [replica for replica in replicas.all if replica.name == name]
    living = [client for replica, client in zip(replicas.all, clients, strict=False) if replica is not dead]
    dead.kill()
    killed_at = time.monotonic()
    for number in range(SESSIONS):
        await new_session(living[number % len(living)])
    await all_told(replicas, receiver, after)
    seconds = time.monotonic() - killed_at
    wanted, found = created(replicas, after), told(receiver)
    assert list(dict.fromkeys(found)) == wanted and receiver.unverified == []
    assert await claimed_by(replicas, webhook_id) != name and seconds < TAKEN_OVER_WITHIN
    twice = sum(count - 1 for count in Counter(found).values())
    assert await living[0].delete(f"/webhook/{webhook_id}")
    figure(f"{seconds:.1f} s from kill -9 of the server that delivers to the last of {len(wanted)} events; 0 lost, {twice} twice")


async def test_a_webhook_that_is_changed_through_another_server_is_changed(
    replicas: Replicas, clients: list[Client], receiver: Receiver
) -> None:
    webhook_id = await hook(clients[0], receiver, "session.created")
    patched: Any = await clients[1].http.patch(f"/webhook/{webhook_id}", json={"events": ["session.idle"]})
    assert patched.json()["events"] == ["session.idle"]
    async with asyncio.timeout(60):
        while not any(each.type == "session.idle" for each in receiver.received):
            await clients[2].prompt(await new_session(clients[2]))
            await asyncio.sleep(0.1)
    assert await clients[2].delete(f"/webhook/{webhook_id}")
