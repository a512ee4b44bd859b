"""The clocks of replicas differ by ten minutes to either side: leases, order and answers are as with one clock."""

import asyncio
from collections.abc import Iterator

import pytest
from figures import Figure
from journal_checks import changed_after_their_end, not_heard
from postgres import PostgresServer
from prompted_model import play
from redis_server import RedisServer
from replica_turns import Message, idle_everywhere, let_go, messages, new_session, ran, wait_until_stored, waits
from replicas import Replicas, running_replicas
from running_server import ROOT
from turns import assert_finished, bash, say, texts

SHIFTS = (600, 0, -600)
"""Seconds."""
LONGER_THAN_A_LEASE = 8.0
"""Seconds after which a lease is stale without a heartbeat."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, redis: RedisServer) -> Iterator[Replicas]:
    """One that is before, one that is right, and one behind."""
    path = f"{ROOT / 'tests' / 'support' / 'shifted_clock'}:{ROOT}"
    shifts = [{"PYTHONPATH": path, "CLOCK_SHIFT": str(seconds)} for seconds in SHIFTS]
    with running_replicas(tmp_path_factory.mktemp("clocks"), postgres, redis, own=shifts) as running:
        yield running


def _ids(found: list[Message]) -> list[str]:
    """Of messages and parts, without what they are of."""
    made = [[message["info"]["id"], *(part["id"] for part in message["parts"])] for message in found]
    return [each.partition("_")[2] for of_message in made for each in of_message]


async def test_what_one_clock_shows_is_no_reason_to_take_a_session_over(replicas: Replicas, figure: Figure) -> None:
    async with replicas.clients() as clients, replicas.followers() as followers:
        sessions = [await new_session(client) for client in clients]
        for number, (client, session) in enumerate(zip(clients, sessions, strict=True)):
            await client.prompt(session, play([bash(waits(f"clock{number}"))], [say("Done.")]), "prompt_async")
            await wait_until_stored(client, session, f"began clock{number}")
        leases = replicas.rows("SELECT session_id, owner, generation FROM run_lease ORDER BY session_id")
        await asyncio.sleep(LONGER_THAN_A_LEASE)
        assert replicas.rows("SELECT session_id, owner, generation FROM run_lease ORDER BY session_id") == leases
        for number in range(3):
            let_go(replicas, f"clock{number}")
        await idle_everywhere(clients)
        for number, session in enumerate(sessions):
            found = await messages(clients[(number + 1) % 3], session)
            assert_finished(found)
            assert texts(found[-1]) == ["Done."] and ran(replicas, f"clock{number}") == 1
            for client in (clients[2], clients[0], clients[1]):
                await client.prompt(session, play([bash("true")], [say("Done.")]))
            made = _ids(await messages(clients[0], session))
            assert made == sorted(made)
        assert await not_heard(replicas, followers) == []
        assert changed_after_their_end(replicas.journal(followers[0].start or 0)) == []
    figure(f"clocks {SHIFTS} seconds off: three turns of {LONGER_THAN_A_LEASE:g} s, none taken over")
