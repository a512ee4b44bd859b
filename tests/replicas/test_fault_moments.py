"""Each fault meets a session at each moment of its work on replica A; in the end all is as if one server had worked."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import pytest
from cable import cable
from figures import Figure
from long_form import LONG, SLACK
from postgres import PostgresServer
from redis_server import RedisServer
from replica_moments import MOMENTS
from replica_rounds import (
    WHOLE,
    Fault,
    Round,
    cut_off,
    freeze,
    kill,
    play_round,
    restart_postgres,
    roll,
    silent_redis,
    without_redis,
)
from replicas import Replicas, running_replicas

ROUNDS = int(os.environ.get("OPENSESSION_TEST_ROUNDS", 20 if LONG else 1))


@dataclass(frozen=True)
class Case:
    """`interrupts`: what A ran ends with it. `takes_over`: other replicas take A's leases."""

    fault: Fault
    interrupts: bool
    takes_over: bool = False
    only_long: bool = False


FAULTS = {
    "kill -9": Case(kill, interrupts=True, takes_over=True),
    "frozen for 15 s": Case(freeze(15), interrupts=True, takes_over=True, only_long=True),
    "cut off from PostgreSQL for 15 s": Case(cut_off(15), interrupts=True, takes_over=True, only_long=True),
    "PostgreSQL restarted": Case(restart_postgres, interrupts=False, only_long=True),
    "no Redis": Case(without_redis, interrupts=False),
    "silent Redis": Case(silent_redis, interrupts=False, only_long=True),
    "rolling restart": Case(roll, interrupts=True),
}
MOST_SECONDS = {"events late": 3.0 * SLACK, "usable again": 15.0 * SLACK}


@dataclass
class Played:
    name: str
    rounds: list[Round]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, redis: RedisServer) -> Iterator[Replicas]:
    """The first can be cut off from PostgreSQL."""
    directory = tmp_path_factory.mktemp("faults")
    with cable(postgres.port) as wire, running_replicas(directory, postgres, redis, wire=wire) as running:
        yield running


@pytest.fixture(scope="module", params=[name for name, case in FAULTS.items() if LONG or not case.only_long])
def played(request: pytest.FixtureRequest, replicas: Replicas) -> Played:
    case = FAULTS[request.param]

    async def rounds() -> list[Round]:
        return [
            await play_round(replicas, case.fault, interrupts=case.interrupts, takes_over=case.takes_over) for _ in range(ROUNDS)
        ]

    try:
        return Played(request.param, asyncio.run(rounds()))
    finally:
        replicas.start()


@pytest.mark.parametrize("moment", [*(kind.name for kind in MOMENTS), *WHOLE])
def test_a_fault_at_a_moment(played: Played, moment: str, figure: Figure) -> None:
    wrong = [complaint for one in played.rounds for complaint in one.wrong.get(moment, ["it was not looked at"])]
    seconds = [one.seconds[moment] for one in played.rounds if moment in one.seconds]
    after = (
        f", taken over after {min(seconds):.1f} to {max(seconds):.1f} s, {median(seconds):.1f} s in the middle" if seconds else ""
    )
    figure(f"{ROUNDS} times: {len(wrong)} wrong{after}")
    assert not wrong, "\n".join(wrong)


def test_how_long_a_fault_is_felt(played: Played, figure: Figure) -> None:
    for what, most in MOST_SECONDS.items():
        measured = [one.figures[what] for one in played.rounds if what in one.figures]
        if measured:
            figure(f"{what}: {max(measured):.1f} s at the most")
            assert max(measured) <= most
