"""Faults at the worst moments: kills between commit and announcement, a freeze within a transaction, a Redis that is late."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

import httpx2
import pytest
from cable import cable
from figures import Figure
from follower import Follower
from journal_checks import not_heard
from killable import PATIENCE, Client
from long_form import LONG, SLACK
from polling import until
from prompted_model import play
from redis_server import RedisServer
from replica_turns import let_go, messages, new_session, request, tool_running
from replicas import Replica, Replicas
from turns import say

from app.events.bus import redis_link
from app.events.bus.redis_link import RedisLink
from app.record.postgres import WRITERS_LOCK

KILLS = 20 if LONG else 2
WRITERS = 3
"""Of each replica."""


async def test_what_was_committed_is_kept_and_heard(replicas: Replicas, figure: Figure) -> None:
    chance, acknowledged, lost = random.Random(7), 0, []
    for kill in range(KILLS):
        async with replicas.clients() as clients, replicas.followers("full", "delta") as followers:
            sessions = {await new_session(client): client for client in clients * WRITERS}
            known: dict[str, int] = {}
            writers = [asyncio.create_task(_rename(client, session, known)) for session, client in sessions.items()]
            await asyncio.sleep(chance.uniform(0.3, 1.0))
            victim = replicas.all[kill % len(replicas.all)]
            victim.kill()
            await asyncio.sleep(0.5)
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)
            await asyncio.to_thread(victim.start)
            for session, number in known.items():
                found = [int((await client.get(f"/session/{session}"))["title"]) for client in clients]
                lost += [session] if min(found) < number or min(found) != max(found) else []
            acknowledged += sum(known.values())
            assert await not_heard(replicas, followers) == []
    figure(f"{KILLS} kills among {acknowledged} commits: {len(lost)} lost, every client heard all, once, in order")
    assert lost == [] and acknowledged


async def _rename(client: Client, session: str, known: dict[str, int]) -> None:
    """Until its replica is gone. `known` is what was acknowledged."""
    number = 0
    while True:
        number += 1
        try:
            response = await client.http.patch(f"/session/{session}", json={"title": str(number)})
        except httpx2.HTTPError:
            return
        if response.status_code == 200:
            known[session] = number


FREEZES = 20 if LONG else 1
HELD_UP_WITHIN = 10.0 * SLACK
"""Seconds: a connection is ended after two, and then both requests are answered on a machine that is busy."""
STOOD = 0.1
"""Seconds for which a transaction has waited for its client, so that this is no moment between two statements."""

HOLDER = """
    SELECT DISTINCT state, pid FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND datname = current_database() AND xact_start IS NOT NULL
    AND wait_event_type = 'Client' AND state_change < clock_timestamp() - make_interval(secs => %s)
"""


def document(session: str) -> dict[str, Any]:
    """As `POST /session/import` takes it: most of the time that it is stored goes by in statements with many rows."""
    time_, model = {"created": 1, "updated": 2}, {"providerID": "fake", "modelID": "main"}
    info = {"id": session, "title": "Kept", "version": "1", "projectID": "p", "directory": "/", "time": time_}
    messages = []
    for number in range(500):
        message = {
            "id": f"msg_{number:05}",
            "sessionID": session,
            "role": "user",
            "agent": "build",
            "model": model,
            "time": time_,
        }
        part = {"id": f"prt_{number:05}", "sessionID": session, "messageID": message["id"], "type": "text", "text": "x" * 4_000}
        messages.append({"info": message, "parts": [part]})
    return {"info": info, "messages": messages}


@asynccontextmanager
async def importing(client: Client) -> AsyncIterator[None]:
    """All the time."""

    async def work() -> None:
        while True:
            # One that a freeze meets may be refused.
            await client.http.post("/session/import", json=document(f"ses_{token_hex(6)}"))

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def freeze_within_a_transaction(replicas: Replicas, replica: Replica, state: str) -> None:
    """As PostgreSQL shows the state of a connection."""
    chance = random.Random(7)
    async with asyncio.timeout(PATIENCE):
        while True:
            replica.freeze()
            await asyncio.sleep(2 * STOOD)
            if [found for found, _ in replicas.rows(HOLDER, STOOD)] == [state]:
                return
            replica.wake()
            await asyncio.sleep(chance.uniform(0.01, 0.1))


@pytest.mark.parametrize("state", ["active", "idle in transaction"])
async def test_a_replica_that_is_frozen_within_a_transaction_does_not_hold_the_others_up(
    replicas: Replicas, clients: list[Client], figure: Figure, state: str
) -> None:
    a, *others = clients
    held_up = []
    async with importing(a):
        for _ in range(FREEZES):
            await freeze_within_a_transaction(replicas, replicas.all[0], state)
            try:
                began = time.monotonic()
                assert [await request(each, "POST", "/session", {"title": "T"}) for each in others] == [200] * len(others)
                held_up.append(time.monotonic() - began)
            finally:
                replicas.all[0].wake()
            assert await request(a, "POST", "/session", {"title": "T"}) == 200
    figure(f"{FREEZES} times: the others were held up for {min(held_up):.1f} to {max(held_up):.1f} s")
    assert max(held_up) <= HELD_UP_WITHIN


HOLD_WRITERS = "SELECT pg_sleep(%s) FROM pg_advisory_xact_lock(%s)"
LONG_SECONDS = 8
"""Longer than a server without a heartbeat goes on with its turns, and counts as alive."""


async def test_a_long_transaction_ends_no_turn_and_no_replica_counts_as_dead(replicas: Replicas, clients: list[Client]) -> None:
    """Such as that of a large import."""
    async with tool_running(replicas, clients[0], "long") as (session, answering):
        holding = asyncio.create_task(asyncio.to_thread(replicas.rows, HOLD_WRITERS, LONG_SECONDS, WRITERS_LOCK))
        while not holding.done():
            assert [await request(client, "GET", "/global/health") for client in clients] == [200] * len(clients)
            await asyncio.wait({holding}, timeout=0.5)
        let_go(replicas, "long")
        answer = await answering
        found = await messages(clients[1], session)
    assert len(found) == 3 and answer["info"].get("error") is None, "the turn was ended, or taken over"


LATE_ROUNDS = 6


async def shown(followers: Sequence[Follower], text: str) -> None:
    await until(lambda: all(any(text in each for each in follower.texts.values()) for follower in followers))


async def test_text_that_comes_late_is_not_shown_twice(replicas: Replicas, clients: list[Client]) -> None:
    async with replicas.followers("delta", "full") as followers:
        session = await new_session(clients[0])
        for number in range(LATE_ROUNDS):
            replicas.redis.freeze()
            try:
                await clients[0].prompt(session, play([say(f"Of round {number} this is all that is said. ", chunks=4)]))
                await shown(followers, f"Of round {number}")
            finally:
                replicas.redis.wake()
            await clients[0].prompt(session, play([say(f"Behind round {number}.", chunks=4, delay=0.02)]))
            await shown(followers, f"Behind round {number}.")
        found = await messages(clients[1], session)
        texts = {part["id"]: part["text"] for message in found for part in message["parts"] if part["type"] == "text"}
        for follower in followers:
            assert {part: text for part, text in follower.texts.items() if part in texts} == texts


async def test_a_redis_that_answers_nothing_counts_as_away_until_it_answers(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "ANSWER_SECONDS", 0.2)
    link = RedisLink(redis.url, "opensession:test", print)
    link.start()
    try:
        await until(lambda: link.is_connected)
        await asyncio.sleep(1)
        assert link.is_connected, "though nobody says anything"
        redis.freeze()
        try:
            async with asyncio.timeout(5):
                await until(lambda: not link.is_connected)
        finally:
            redis.wake()
        await until(lambda: link.is_connected)
    finally:
        await link.stop()


async def test_an_announcement_that_is_never_answered_does_not_end_them(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Redis moves to another machine: what was sent to the old one is lost."""
    monkeypatch.setattr(redis_link, "ANSWER_SECONDS", 0.2)
    received: list[Any] = []
    with cable(redis.port) as wire:
        sender = RedisLink(f"redis://127.0.0.1:{wire.port}/0", "opensession:test", print)
        receiver = RedisLink(redis.url, "opensession:test", received.append)
        for link in (sender, receiver):
            link.start()
        try:
            await until(lambda: sender.is_connected and receiver.is_connected)
            sender.send([1])
            await until(lambda: received == [[1]])
            wire.lose()
            sender.send([2])
            await until(lambda: not sender.is_connected)
            await until(lambda: sender.is_connected)
            sender.send([3])
            await until(lambda: [3] in received, seconds=5)
        finally:
            for link in (sender, receiver):
                await link.stop()


async def test_what_cannot_be_written_does_not_end_the_announcements(redis: RedisServer) -> None:
    received: list[Any] = []
    sender, receiver = (RedisLink(redis.url, "opensession:test", take) for take in (print, received.append))
    for link in (sender, receiver):
        link.start()
    await until(lambda: sender.is_connected and receiver.is_connected)
    for message in ([0, "/a/\udcff"], [1, "/a"]):
        sender.send(message)
    await until(lambda: received == [[1, "/a"]])
    for link in (sender, receiver):
        await link.stop()
