"""A replica is frozen at the worst moment, on purpose: within a transaction for whose end the writers of all replicas wait."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

import pytest
from killable import PATIENCE, Client
from long_form import LONG, SLACK
from replica_turns import request
from replicas import Replica, Replicas

Figure = Callable[[str], None]

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
    time_ = {"created": 1, "updated": 2}
    info = {"id": session, "title": "Kept", "version": "1", "projectID": "p", "directory": "/", "time": time_}
    return {"info": info, "messages": [_message(session, f"{number:05}") for number in range(500)]}


def _message(session: str, number: str) -> dict[str, Any]:
    here = {"sessionID": session, "messageID": f"msg_{number}"}
    model = {"providerID": "fake", "modelID": "main"}
    info = {"id": f"msg_{number}", "sessionID": session, "role": "user", "agent": "build", "model": model, "time": {"created": 1}}
    return {"info": info, "parts": [{"id": f"prt_{number}", **here, "type": "text", "text": "x" * 4_000}]}


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
