"""Each fault meets a session at each moment of its work on replica A; in the end all is as if one server had worked.

A round: sessions of replica A reach all moments, a fault strikes, and what became of all is looked at."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median

import psycopg
import pytest
from cable import cable
from figures import Figure
from follower import Follower
from journal_checks import answered_more_than_once, changed_after_their_end, not_heard
from killable import Client
from long_form import LONG, SLACK
from postgres import PostgresServer
from redis_server import RedisServer
from replica_moments import MOMENTS, Moment, Reverting
from replica_turns import idle_everywhere, request
from replicas import Replicas, running_replicas

ROUNDS = int(os.environ.get("OPENSESSION_TEST_ROUNDS", 20 if LONG else 1))
TAKEN_OVER_WITHIN = 10.0 * SLACK
AT_WORK = ("streaming", "tool", "permission", "question", "compaction", "subagent")
"""What A works on for certain when the fault strikes; the others may be over."""
FENCED_WITHIN = 6.0 * SLACK
"""Seconds until a replica that cannot reach PostgreSQL has ended its commands: before another takes over."""
IDLE_WITHIN = 40.0
ASKING = {"permission": {"external_directory": "allow", "bash": {"*": "allow", "make *": "ask"}}}
WHOLE = ("clients", "journal", "idle", "processes")
"""What is looked at of a round as a whole."""


@dataclass
class Round:
    """`wrong` by moment, and by what is looked at of the whole; `seconds` until another replica had a session's lease."""

    wrong: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, *complaints: str) -> None:
        self.wrong.setdefault(name, []).extend(complaints)


class Stage:
    """What a fault is given: `strike` is called when it has struck, `go_on` when people may go on."""

    def __init__(self, replicas: Replicas, clients: list[Client], followers: list[Follower]) -> None:
        self.replicas, self.clients, self.followers = replicas, clients, followers
        self.a, self.b, self.c = (replicas.all * 3)[:3]
        self.round = Round()
        self.moments = [kind(replicas, clients) for kind in MOMENTS]
        self.struck = 0.0
        self.leases: LeaseWatch

    async def reach(self) -> None:
        await self._each(lambda moment: moment.create())
        await self._each(lambda moment: moment.reach())
        for first in (True, False):
            await self._each(lambda moment: moment.strike(), [one for one in self.moments if isinstance(one, Reverting) is first])

    def strike(self) -> None:
        """The model goes on, which was waited for."""
        self.struck = time.monotonic()
        self.replicas.model.release(*(moment.key for moment in self.moments))

    async def go_on(self) -> None:
        await self._each(lambda moment: moment.go_on())

    async def look(self, interrupts: bool) -> None:
        """When all is idle."""
        try:
            async with asyncio.timeout(IDLE_WITHIN):
                await idle_everywhere(self.clients)
        except TimeoutError:
            self.round.note("idle", f"busy: {await self.clients[1].get('/session/status')}")
        await self._each(lambda moment: moment.end())
        await self._each(lambda moment: moment.check(interrupts))
        for name in WHOLE:
            self.round.note(name)
        self.round.note("clients", *await not_heard(self.replicas, self.followers))
        journal = self.replicas.journal(self.followers[0].start or 0)
        self.round.note("journal", *changed_after_their_end(journal), *answered_more_than_once(journal))
        for rows in ("pending_ask", "message WHERE open"):
            ((count,),) = self.replicas.rows(f"SELECT count(*) FROM {rows}")
            self.round.note("idle", *([f"{count} rows are left open: {rows}"] if count else []))
        self.round.note("processes", *[f"process {pid} is left" for pid in self.replicas.left_running()])

    async def _each(self, step: Callable[[Moment], Awaitable[None]], moments: list[Moment] | None = None) -> None:
        """At once. What fails of one does not keep the others up."""

        async def taken(moment: Moment) -> None:
            self.round.note(moment.name)
            try:
                await step(moment)
            except Exception as error:
                self.round.note(moment.name, f"{type(error).__name__}: {error}"[:600])

        await asyncio.gather(*(taken(moment) for moment in (self.moments if moments is None else moments)))


class LeaseWatch:
    """When the lease of each session had another owner than replica A, which works on `session`."""

    def __init__(self, replicas: Replicas, session: str) -> None:
        self._replicas = replicas
        self._stopped = threading.Event()
        self.taken: dict[str, float] = {}
        self.went_back: list[str] = []
        rows = replicas.rows("SELECT owner FROM run_lease WHERE session_id = %s", session)
        self._owner = rows[0][0] if rows else None
        self._generations: dict[str, int] = {}

    @contextmanager
    def watching(self) -> Iterator["LeaseWatch"]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.05):
            with suppress(psycopg.Error), psycopg.connect(self._replicas.database, autocommit=True) as connection:
                while not self._stopped.wait(0.05):
                    self._look(connection)

    def _look(self, connection: psycopg.Connection) -> None:
        for session, owner, generation in connection.execute("SELECT session_id, owner, generation FROM run_lease"):
            if owner != self._owner:
                self.taken.setdefault(session, time.monotonic())
            if generation < self._generations.get(session, 0):
                self.went_back.append(f"the generation of {session} went from {self._generations[session]} to {generation}")
            self._generations[session] = generation


Fault = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """`interrupts`: what A ran ends with it. `takes_over`: other replicas take A's leases."""

    fault: Fault
    interrupts: bool
    takes_over: bool = False
    only_long: bool = False


async def play_round(replicas: Replicas, case: Case) -> Round:
    replicas.configure(ASKING)
    async with replicas.clients() as clients, replicas.followers("full", "delta") as followers:
        stage = Stage(replicas, clients, followers)
        await stage.reach()
        streaming = next(moment.session for moment in stage.moments if moment.name == "streaming")
        with LeaseWatch(replicas, streaming).watching() as stage.leases:
            await case.fault(stage)
            await stage.look(case.interrupts)
        stage.round.note("journal", *stage.leases.went_back)
        for moment in stage.moments if case.takes_over else ():
            seconds = stage.leases.taken.get(moment.session, math.inf) - stage.struck
            if seconds < math.inf:
                stage.round.seconds[moment.name] = seconds
            if moment.name in AT_WORK and seconds > TAKEN_OVER_WITHIN:
                stage.round.note(moment.name, f"taken over after {seconds:.1f} s")
        return stage.round


async def taken_over(stage: Stage) -> None:
    """Until other replicas have what A worked on, or as long as it may take."""
    wanted = {moment.session for moment in stage.moments if moment.name in AT_WORK}
    while not wanted <= stage.leases.taken.keys() and time.monotonic() < stage.struck + TAKEN_OVER_WITHIN + 1:
        await asyncio.sleep(0.05)


# The faults.


async def kill(stage: Stage) -> None:
    stage.a.kill()
    stage.strike()
    await taken_over(stage)
    stage.round.note("processes", *[f"process {pid} of the killed replica runs on" for pid in stage.replicas.orphaned()])
    await stage.go_on()
    await asyncio.to_thread(stage.a.start)


async def fenced(stage: Stage) -> None:
    """Until A has ended its commands: no lease keeps them from writing files."""
    while left := stage.replicas.left_running():
        if time.monotonic() > stage.struck + FENCED_WITHIN:
            stage.round.note("processes", *[f"process {pid} of a replica that was cut off runs on" for pid in left])
            return
        await asyncio.sleep(0.05)


def held(seconds: float, *, is_cut_off: bool = False) -> Fault:
    """Frozen; or the wire between A and PostgreSQL: connections stay open, and nothing comes through."""

    async def hold(stage: Stage) -> None:
        wire = stage.replicas.wire
        assert wire is not None
        (wire.hold if is_cut_off else stage.a.freeze)()
        try:
            stage.strike()
            if is_cut_off:
                await fenced(stage)
            await taken_over(stage)
            await stage.go_on()
            await asyncio.sleep(max(0, stage.struck + seconds - time.monotonic()))
        finally:
            (wire.let_go if is_cut_off else stage.a.wake)()
        await asyncio.sleep(1)

    return hold


async def without_redis(stage: Stage) -> None:
    stage.replicas.redis.stop()
    stage.strike()
    try:
        await asyncio.sleep(0.5)
        await stage.go_on()
        await idle_everywhere(stage.clients)
        stage.round.figures["events late"] = lateness(stage)
    finally:
        await asyncio.to_thread(stage.replicas.redis.start)


async def silent_redis(stage: Stage) -> None:
    stage.replicas.redis.freeze()
    stage.strike()
    try:
        await stage.go_on()
        await asyncio.sleep(3)
        stage.round.figures["events late"] = lateness(stage)
    finally:
        stage.replicas.redis.wake()


def lateness(stage: Stage) -> float:
    """Seconds between the first and the last client that heard of something, since the fault."""
    heard = [{one.id: one.at for one in follower.events if one.at > stage.struck} for follower in stage.followers]
    common = set(heard[0]).intersection(*heard[1:])
    return max((max(times[key] for times in heard) - min(times[key] for times in heard) for key in common), default=0)


async def restart_postgres(stage: Stage) -> None:
    stage.strike()
    await asyncio.to_thread(stage.replicas.postgres.restart)
    answers = time.monotonic()
    for client in stage.clients:
        async with asyncio.timeout(IDLE_WITHIN):
            while await request(client, "POST", "/session", {"title": "Mark"}) != 200:
                await asyncio.sleep(0.1)
    stage.round.figures["usable again"] = time.monotonic() - answers
    await stage.go_on()


async def roll(stage: Stage) -> None:
    stage.strike()
    for replica in stage.replicas.all:
        await asyncio.to_thread(replica.stop)
        await asyncio.to_thread(replica.start)
    await stage.go_on()


FAULTS = {
    "kill -9": Case(kill, interrupts=True, takes_over=True),
    "frozen for 15 s": Case(held(15), interrupts=True, takes_over=True, only_long=True),
    "cut off from PostgreSQL for 15 s": Case(held(15, is_cut_off=True), interrupts=True, takes_over=True, only_long=True),
    "PostgreSQL restarted": Case(restart_postgres, interrupts=False, only_long=True),
    "no Redis": Case(without_redis, interrupts=False),
    "silent Redis": Case(silent_redis, interrupts=False, only_long=True),
    "rolling restart": Case(roll, interrupts=True),
}
MAX_SECONDS = {"events late": 3.0 * SLACK, "usable again": 15.0 * SLACK}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, redis: RedisServer) -> Iterator[Replicas]:
    """The first can be cut off from PostgreSQL."""
    directory = tmp_path_factory.mktemp("faults")
    with cable(postgres.port) as wire, running_replicas(directory, postgres, redis, wire=wire) as running:
        yield running


@pytest.fixture(scope="module", params=[name for name, case in FAULTS.items() if LONG or not case.only_long])
def played(request: pytest.FixtureRequest, replicas: Replicas) -> list[Round]:
    try:
        return [asyncio.run(play_round(replicas, FAULTS[request.param])) for _ in range(ROUNDS)]
    finally:
        replicas.start()


@pytest.mark.parametrize("moment", [*(kind.name for kind in MOMENTS), *WHOLE])
def test_a_fault_at_a_moment(played: list[Round], moment: str, figure: Figure) -> None:
    wrong = [complaint for one in played for complaint in one.wrong.get(moment, ["it was not looked at"])]
    seconds = [one.seconds[moment] for one in played if moment in one.seconds]
    taken = f", taken over after {min(seconds):.1f} to {max(seconds):.1f} s, median {median(seconds):.1f} s" if seconds else ""
    figure(f"{ROUNDS} times: {len(wrong)} wrong{taken}")
    assert not wrong, "\n".join(wrong)


def test_how_long_a_fault_is_felt(played: list[Round], figure: Figure) -> None:
    for what, most in MAX_SECONDS.items():
        measured = [one.figures[what] for one in played if what in one.figures]
        if measured:
            figure(f"{what}: {max(measured):.1f} s at the most")
            assert max(measured) <= most
