"""What several servers, and works of one session, do to its turns. `tests/flows` has how they are joined, awaited and aborted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from polling import until
from session_parts import Sessions, user

from app.record.engine import StorageError
from app.record.repositories import work_rows
from app.record.writer import Lease
from app.schema.errors import SessionBusy
from app.schema.session import Busy
from app.sessions.lease import Leases
from app.sessions.live import EndOfRun, LiveSession, LiveSessions, WorkKind
from app.sessions.rows import message_row
from app.turn.runs.turns import Turns, TurnWork


@dataclass
class WaitingTurn:
    work: TurnWork
    instance: Any
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    may_settle: asyncio.Event = field(default_factory=asyncio.Event)
    is_aborted = is_settled = False

    async def run(self) -> None:
        self.work.joined.clear()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.is_aborted = True
            await asyncio.shield(self.may_settle.wait())
            self.is_settled = True
            raise


class Running(Turns):
    """Its turns only wait to be let go, and are remembered."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.leases = Leases(sessions.database, sessions.storage.writer)
        self.sessions_at_work = LiveSessions(sessions.store, self.leases)
        super().__init__(SimpleNamespace(store=sessions.store), None, self.sessions_at_work, 100)
        self.made = asyncio.Semaphore(0)
        self.begun: list[WaitingTurn] = []
        self.instance = self.new_instance()

    @property
    def live(self) -> LiveSession:
        return self.sessions_at_work.get("ses_1")

    @staticmethod
    def new_instance() -> Any:
        return SimpleNamespace(location=SimpleNamespace(directory="/w"), resources=SimpleNamespace(in_use=nullcontext))

    async def _run_turn(self, live: LiveSession, work: TurnWork) -> None:
        self.begun.append(WaitingTurn(work, work.instance))
        self.made.release()
        await self.begun[-1].run()

    def prompt(self) -> asyncio.Task[Any]:
        return asyncio.create_task(self.start("ses_1", self.instance).ended.wait())

    async def next_turn(self, *, may_settle: bool = True) -> WaitingTurn:
        await asyncio.wait_for(self.made.acquire(), 60)
        if may_settle:
            self.begun[-1].may_settle.set()
        return self.begun[-1]

    async def lease(self) -> Any:
        await self.sessions.store.barrier()
        return await self.sessions.store.query(work_rows.lease_of, "ses_1")

    async def accepted_elsewhere(self) -> None:
        """A prompt, by another server."""
        prompt = message_row(user("msg_2"), waits=True)
        await self.sessions.store.write("ses_1", "/w", lambda tx: tx.put_message(prompt))


@pytest.fixture
async def running(sessions: Sessions) -> AsyncIterator[Running]:
    running = Running(sessions)
    yield running
    await running.leases.close()


async def test_a_prompt_that_the_turn_did_not_see_gets_another_turn_with_the_instance_of_then(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    began_with, running.instance = running.instance, running.new_instance()
    second = running.prompt()
    await asyncio.sleep(0)
    turn.may_end.set()
    again = await running.next_turn()
    assert again is not turn and not first.done() and not second.done()
    assert turn.instance is began_with and again.instance is running.instance
    again.may_end.set()
    await asyncio.gather(first, second)


async def test_aborts_at_once_return_when_the_record_is_settled_and_do_not_cut_that_short(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn(may_settle=False)
    aborts = [asyncio.create_task(running.sessions_at_work.abort("ses_1"))]
    while not turn.is_aborted:
        await asyncio.sleep(0)
    aborts.append(asyncio.create_task(running.sessions_at_work.abort("ses_1")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(abort.done() for abort in aborts) and running.sessions_at_work.is_running("ses_1")
    turn.may_settle.set()
    await asyncio.gather(prompt, *aborts)
    assert turn.is_settled and not running.sessions_at_work.is_running("ses_1")


async def test_work_that_a_prompt_overtakes_is_refused_and_takes_nothing_of_its_turn(running: Running) -> None:
    async def must_not_run() -> None:
        raise AssertionError("must not run")

    live = running.live
    await live.messages.acquire()  # as a prompt does that is being stored
    alone = asyncio.create_task(running.run_exclusively("ses_1", "/w", WorkKind.REVERT, must_not_run))
    await asyncio.sleep(0)
    prompt = running.prompt()
    turn = await running.next_turn()
    live.messages.release()
    with pytest.raises(SessionBusy):
        await alone
    assert await running.lease() is not None and running.sessions_at_work.is_running("ses_1")
    turn.may_end.set()
    await prompt
    assert not live.is_held


# Other servers of the database.


async def test_a_prompt_waits_for_the_run_of_another_server_and_has_its_answer(running: Running) -> None:
    other = Leases(running.sessions.database, running.sessions.storage.writer)
    await other.acquire("ses_1")
    announced = len(running.sessions.announced)
    prompt = running.prompt()
    await asyncio.sleep(0.1)
    assert running.begun == [] and not prompt.done()
    other.release("ses_1")
    await asyncio.wait_for(prompt, 60)
    assert running.begun == [], "nothing is left to answer"
    assert len(running.sessions.announced) == announced
    await other.close()


async def test_another_server_ends_a_run(running: Running) -> None:
    other = Leases(running.sessions.database, running.sessions.storage.writer)
    running.sessions_at_work.watch()
    prompt = running.prompt()
    turn = await running.next_turn()
    await asyncio.wait_for(other.request_abort("ses_1"), 60)
    await asyncio.wait_for(prompt, 60)
    assert turn.is_aborted
    await running.sessions_at_work.close()


async def test_a_prompt_that_comes_while_another_server_s_abort_ends_the_run_is_answered(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run takes longer to end than the time between two looks."""
    other = Leases(running.sessions.database, running.sessions.storage.writer)
    monkeypatch.setattr("app.sessions.live.POLL_SECONDS", 0.01)
    running.sessions_at_work.watch()
    prompt = running.prompt()
    turn = await running.next_turn(may_settle=False)
    aborting = asyncio.create_task(other.request_abort("ses_1"))
    await until(lambda: turn.is_aborted)
    later = running.prompt()
    await asyncio.sleep(0.1)
    turn.may_settle.set()
    await asyncio.wait_for(asyncio.gather(prompt, aborting), 60)
    again = await running.next_turn()
    again.may_end.set()
    await later
    assert not again.is_aborted
    await running.sessions_at_work.close()


async def test_a_server_that_the_database_has_not_heard_of_for_long_ends_its_runs_without_a_word(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.sessions_at_work.watch()
    prompt = running.prompt()
    await running.next_turn()
    announced = len(running.sessions.announced)
    monkeypatch.setattr(running.leases, "heartbeat_age", lambda: 5.0)
    await asyncio.wait_for(prompt, 60)
    assert len(running.sessions.announced) == announced, "it is not idle: another server goes on"
    assert (await running.lease()).owner == running.leases.owner, "until it is stale"
    assert await running.sessions_at_work.statuses("/w") == {"ses_1": Busy()}
    await running.sessions_at_work.close()


async def test_turns_that_cannot_be_handed_over_end_all_the_same(running: Running) -> None:
    """The server stops: what the database does not store now, a server finds when the heartbeat has become old."""
    prompt = running.prompt()
    turn = await running.next_turn()
    running.sessions.database.full = True
    await running.sessions_at_work.hand_over()
    await prompt
    assert turn.is_settled and (await running.lease()).owner == running.leases.owner


async def test_an_abort_whose_lease_the_database_refuses_is_stored_later(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, refusals = running.leases.acquire, iter([asyncio.CancelledError(), StorageError("database or disk is full")])

    async def refused(*arguments: Any, **options: Any) -> Lease:
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        return await acquire(*arguments, **options)

    monkeypatch.setattr(running.leases, "acquire", refused)
    await running.prompt()
    await until(lambda: not running.live.unstored_end)
    assert await running.sessions_at_work.statuses("/w") == {}
    await running.sessions_at_work.close()


async def test_a_prompt_that_another_server_has_accepted_gets_a_turn_before_the_session_is_idle(running: Running) -> None:
    """One turn: what that leaves without an answer does not keep the session busy for ever."""
    first = running.prompt()
    turn = await running.next_turn()
    await running.accepted_elsewhere()
    turn.may_end.set()
    second = await running.next_turn()
    await first
    assert running.sessions_at_work.is_running("ses_1") and running.live.status
    assert "session.idle" not in [event["type"] for event in running.sessions.announced]
    second.may_end.set()
    await running.live.idle()
    assert running.sessions.announced[-1]["type"] == "session.idle" and len(running.begun) == 2


async def test_a_prompt_that_another_server_has_accepted_is_left_to_it_when_this_one_stops(running: Running) -> None:
    """The run is ending, and is aborted before it is known that a prompt waits."""
    first = running.prompt()
    turn = await running.next_turn()
    await running.accepted_elsewhere()
    stopping, set_idle = asyncio.Event(), running.live.set_idle

    def stop_meanwhile(*args: Any, **kwargs: Any) -> asyncio.Future[EndOfRun]:
        stopping.set()
        return set_idle(*args, **kwargs)

    running.live.set_idle = stop_meanwhile
    turn.may_end.set()
    await stopping.wait()
    await running.sessions_at_work.close()
    await first
    assert len(running.begun) == 1 and not running.live.status
