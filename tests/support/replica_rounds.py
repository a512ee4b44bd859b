"""A round: sessions of replica A reach all moments, a fault strikes, and what became of all is looked at."""

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from follower import Follower
from journal_checks import answered_more_than_once, changed_after_their_end, not_heard
from killable import Client
from long_form import SLACK
from replica_moments import MOMENTS, Moment, Reverting
from replica_turns import idle_everywhere, request
from replicas import Replicas

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
        await self._each(self.moments, lambda moment: moment.create())
        await self._each(self.moments, lambda moment: moment.reach())
        await self._each([one for one in self.moments if isinstance(one, Reverting)], lambda moment: moment.strike())
        await self._each([one for one in self.moments if not isinstance(one, Reverting)], lambda moment: moment.strike())

    def strike(self) -> None:
        self.struck = time.monotonic()
        for moment in self.moments:
            moment.release()

    async def go_on(self) -> None:
        await self._each(self.moments, lambda moment: moment.go_on())

    async def look(self, interrupts: bool) -> None:
        """When all is idle."""
        try:
            async with asyncio.timeout(IDLE_WITHIN):
                await idle_everywhere(self.clients)
        except TimeoutError:
            self.round.note("idle", f"busy: {await self.clients[1].get('/session/status')}")
        await self._each(self.moments, lambda moment: moment.end())
        await self._each(self.moments, lambda moment: moment.check(interrupts))
        for name in WHOLE:
            self.round.note(name)
        self.round.note("clients", *await not_heard(self.replicas, self.followers))
        journal = self.replicas.journal(self.followers[0].start or 0)
        self.round.note("journal", *changed_after_their_end(journal), *answered_more_than_once(journal))
        self.round.note("idle", *self._left_open())
        self.round.note("processes", *[f"process {pid} is left" for pid in self.replicas.left_running()])

    def _left_open(self) -> list[str]:
        found = [f"{table}: {count}" for table, count in self._open_rows().items() if count]
        return [f"rows are left open: {', '.join(found)}"] if found else []

    def _open_rows(self) -> dict[str, int]:
        ((asks,),) = self.replicas.rows("SELECT count(*) FROM pending_ask")
        ((messages,),) = self.replicas.rows("SELECT count(*) FROM message WHERE open")
        return {"pending_ask": asks, "message": messages}

    async def _each(self, moments: list[Moment], step: Callable[[Moment], Awaitable[None]]) -> None:
        """At once. What fails of one does not keep the others up."""

        async def taken(moment: Moment) -> None:
            self.round.note(moment.name)
            try:
                await step(moment)
            except Exception as error:
                self.round.note(moment.name, f"{type(error).__name__}: {error}"[:600])

        await asyncio.gather(*(taken(moment) for moment in moments))

    def sessions(self) -> dict[str, str]:
        return {moment.session: moment.name for moment in self.moments}


class LeaseWatch:
    """When the lease of each session had another owner than replica A."""

    def __init__(self, replicas: Replicas, session: str) -> None:
        self._replicas = replicas
        self._stopped = threading.Event()
        self.taken: dict[str, float] = {}
        self.went_back: list[str] = []
        rows = replicas.rows("SELECT owner FROM run_lease WHERE session_id = %s", session)
        self._owner = rows[0][0] if rows else None
        self._generations: dict[str, int] = {}

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._replicas.database, autocommit=True) as connection:
                while not self._stopped.wait(0.05):
                    self._look(connection)
            time.sleep(0.05)

    def stop(self) -> None:
        self._stopped.set()

    def _look(self, connection: psycopg.Connection) -> None:  # type: ignore[type-arg]
        for session, owner, generation in connection.execute("SELECT session_id, owner, generation FROM run_lease"):
            if owner != self._owner:
                self.taken.setdefault(session, time.monotonic())
            if generation < self._generations.get(session, 0):
                self.went_back.append(f"the generation of {session} went from {self._generations[session]} to {generation}")
            self._generations[session] = generation


@contextmanager
def watching_leases(replicas: Replicas, session: str) -> Iterator[LeaseWatch]:
    """`session` is one that replica A works on."""
    watch = LeaseWatch(replicas, session)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()


Fault = Callable[[Stage], Awaitable[None]]


async def play_round(replicas: Replicas, fault: Fault, *, interrupts: bool, takes_over: bool) -> Round:
    replicas.configure(ASKING)
    async with replicas.clients() as clients, replicas.followers("full", "delta") as followers:
        stage = Stage(replicas, clients, followers)
        await stage.reach()
        streaming = next(moment.session for moment in stage.moments if moment.name == "streaming")
        with watching_leases(replicas, streaming) as stage.leases:
            await fault(stage)
            await stage.look(interrupts)
        stage.round.note("journal", *stage.leases.went_back)
        for session, name in stage.sessions().items() if takes_over else ():
            if session in stage.leases.taken:
                stage.round.seconds[name] = stage.leases.taken[session] - stage.struck
        for name in AT_WORK if takes_over else ():
            if stage.round.seconds.get(name, math.inf) > TAKEN_OVER_WITHIN:
                stage.round.note(name, f"taken over after {stage.round.seconds.get(name, math.inf):.1f} s")
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


def freeze(seconds: float) -> Fault:
    async def frozen(stage: Stage) -> None:
        stage.a.freeze()
        try:
            stage.strike()
            await taken_over(stage)
            await stage.go_on()
            await asyncio.sleep(max(0, stage.struck + seconds - time.monotonic()))
        finally:
            stage.a.wake()
        await asyncio.sleep(1)

    return frozen


async def fenced(stage: Stage) -> None:
    """Until A has ended its commands: no lease keeps them from writing files."""
    while left := stage.replicas.left_running():
        if time.monotonic() > stage.struck + FENCED_WITHIN:
            stage.round.note("processes", *[f"process {pid} of a replica that was cut off runs on" for pid in left])
            return
        await asyncio.sleep(0.05)


def cut_off(seconds: float) -> Fault:
    """The wire between A and PostgreSQL: connections stay open, and nothing comes through."""

    async def cut(stage: Stage) -> None:
        wire = stage.replicas.wire
        assert wire is not None
        wire.hold()
        stage.strike()
        try:
            await fenced(stage)
            await taken_over(stage)
            await stage.go_on()
            await asyncio.sleep(max(0, stage.struck + seconds - time.monotonic()))
        finally:
            wire.let_go()
        await asyncio.sleep(1)

    return cut


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
