"""Replicas are killed at random moments of bursts of commits: between commit and announcement, or with a writer's lock."""

import asyncio
import random
from collections.abc import Callable

import httpx2
from journal_checks import not_heard
from killable import Client
from long_form import LONG
from replica_turns import new_session
from replicas import Replicas

Figure = Callable[[str], None]

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
