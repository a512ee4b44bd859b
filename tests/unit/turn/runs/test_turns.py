import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bare_instance import bare_instance
from session_parts import Sessions, session, user
from storage_parts import put_lease

from app.record.engine import StorageError
from app.record.repositories import work_rows
from app.record.writer import Lease
from app.schema.errors import SessionBusy
from app.schema.session import Busy
from app.sessions.lease import Leases
from app.sessions.live import EndOfRun, LiveSession, LiveSessions, SessionWork, WorkKind
from app.sessions.rows import message_row
from app.turn.runs.turns import Turns, TurnWork
from app.workspace.instance import Instance


class WaitingTurns(Turns):
    """Its turns only wait to be let go, and are remembered."""

    def __init__(self, sessions: LiveSessions) -> None:
        super().__init__(cast(Any, SimpleNamespace(store=sessions.store)), cast(Any, None), sessions)
        self.made = asyncio.Semaphore(0)
        self.running: list[WaitingTurn] = []

    async def _run_turn(self, live: LiveSession, work: TurnWork) -> None:
        turn = WaitingTurn(work.instance, work)
        self.running.append(turn)
        self.made.release()
        await turn.run()


class WaitingTurn:
    def __init__(self, instance: Instance, work: TurnWork) -> None:
        self.instance = instance
        self.work = work
        self.may_end = asyncio.Event()
        self.may_finish = asyncio.Event()
        self.finishing = asyncio.Event()
        self.finished = False

    async def run(self) -> None:
        self.work.joined.clear()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            await asyncio.shield(self._finish())
            raise

    async def _finish(self) -> None:
        self.finishing.set()
        await self.may_finish.wait()
        self.finished = True


class Running:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.leases = Leases(sessions.database, sessions.storage.writer)
        self.live = LiveSessions(sessions.store, self.leases)
        self.turns = WaitingTurns(self.live)
        self.id = "ses_1"
        self.instance = bare_instance("/w")

    def prompt(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.answered())

    async def answered(self) -> None:
        await self.turns.start(self.id, self.instance).ended.wait()

    async def next_turn(self) -> WaitingTurn:
        await asyncio.wait_for(self.turns.made.acquire(), 5)
        return self.turns.running[-1]


@pytest.fixture
async def running(sessions: Sessions) -> AsyncIterator[Running]:
    running = Running(sessions)
    yield running
    await running.leases.close()


async def test_a_prompt_starts_a_turn_and_returns_when_the_session_is_idle(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()
    assert running.live.is_running(running.id) and not prompt.done()
    assert running.live.of_directory("/w") == [running.id]
    turn.may_end.set()
    await prompt
    assert not running.live.is_running(running.id)
    assert running.sessions.announced[-1]["type"] == "session.idle"
    await running.sessions.store.barrier()
    assert (await running.sessions.store.query(work_rows.lease_of, running.id)).owner == ""


async def test_a_prompt_that_comes_meanwhile_joins(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    second = running.prompt()
    await asyncio.sleep(0)
    assert turn.work.joined.is_set()
    turn.work.joined.clear()  # as it reads the conversation again
    turn.may_end.set()
    await asyncio.gather(first, second)
    assert len(running.turns.running) == 1


async def test_a_prompt_that_the_turn_did_not_see_gets_another_turn(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    second = running.prompt()
    await asyncio.sleep(0)
    turn.may_end.set()
    again = await running.next_turn()
    assert again is not turn and not first.done() and not second.done()
    again.may_end.set()
    await asyncio.gather(first, second)


async def test_a_turn_keeps_its_instance_and_the_next_one_has_that_of_the_prompt_that_joined(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    began_with, running.instance = running.instance, bare_instance("/w")
    second = running.prompt()
    await asyncio.sleep(0)
    turn.may_end.set()
    again = await running.next_turn()
    assert turn.instance is began_with and again.instance is running.instance
    again.may_end.set()
    await asyncio.gather(first, second)


async def test_a_prompt_that_comes_while_a_turn_is_ending_waits_and_starts_anew(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    turn.may_end.set()
    await first
    second = running.prompt()
    (await running.next_turn()).may_end.set()
    await second
    assert len(running.turns.running) == 2


async def test_an_abort_returns_when_the_record_is_settled(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()
    abort = asyncio.create_task(running.live.abort(running.id))
    await asyncio.wait_for(turn.finishing.wait(), 5)
    assert not abort.done() and running.live.is_running(running.id)
    turn.may_finish.set()
    await asyncio.gather(abort, prompt)
    assert turn.finished and not running.live.is_running(running.id)


async def test_a_turn_that_has_not_had_its_first_moment_can_be_aborted(running: Running) -> None:
    running.turns.start(running.id, running.instance)
    await asyncio.wait_for(running.live.abort(running.id), 5)
    assert not running.live.is_running(running.id)


async def test_aborts_at_once_do_not_cut_the_settling_short(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()
    first = asyncio.create_task(running.live.abort(running.id))
    await asyncio.wait_for(turn.finishing.wait(), 5)
    second = asyncio.create_task(running.live.abort(running.id))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not first.done() and not second.done() and running.live.is_running(running.id)
    turn.may_finish.set()
    await asyncio.gather(first, second, prompt)
    assert turn.finished


async def test_a_prompt_during_an_abort_gets_a_turn_of_its_own(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    abort = asyncio.create_task(running.live.abort(running.id))
    await asyncio.wait_for(turn.finishing.wait(), 5)
    second = running.prompt()
    turn.may_finish.set()
    await asyncio.gather(first, abort)
    (await running.next_turn()).may_end.set()
    await second
    assert len(running.turns.running) == 2


async def test_an_abort_of_an_idle_session_is_over_at_once(running: Running) -> None:
    await running.live.abort("ses_nope")


async def test_a_caller_that_goes_away_does_not_stop_the_turn(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()
    prompt.cancel()
    await asyncio.wait({prompt})
    assert running.live.is_running(running.id)
    turn.may_end.set()
    while running.live.is_running(running.id):
        await asyncio.sleep(0)


async def test_closing_aborts_everything(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()
    turn.may_finish.set()
    await running.live.close()
    await prompt
    assert turn.finished


async def test_work_that_needs_the_session_alone_is_refused_while_a_turn_runs(running: Running) -> None:
    prompt = running.prompt()
    turn = await running.next_turn()

    async def work() -> None:
        raise AssertionError("must not run")

    with pytest.raises(SessionBusy):
        await running.turns.run_exclusively(running.id, "/w", WorkKind.SHELL, work)
    turn.may_end.set()
    await prompt


async def test_a_prompt_waits_for_work_that_has_the_session_alone(running: Running) -> None:
    may_end = asyncio.Event()

    async def work() -> str:
        await may_end.wait()
        return "done"

    alone = asyncio.create_task(running.turns.run_exclusively(running.id, "/w", WorkKind.SHELL, work))
    await asyncio.sleep(0)
    prompt = running.prompt()
    await asyncio.sleep(0)
    assert not running.turns.running
    may_end.set()
    assert await alone == "done"
    (await running.next_turn()).may_end.set()
    await prompt


async def test_work_that_a_prompt_overtakes_is_refused_and_takes_nothing_of_its_turn(running: Running) -> None:
    async def work() -> None:
        raise AssertionError("must not run")

    live = running.live.get(running.id)
    await live.messages.acquire()  # as a prompt does that is being stored
    alone = asyncio.create_task(running.turns.run_exclusively(running.id, "/w", WorkKind.REVERT, work))
    await asyncio.sleep(0)
    prompt = running.prompt()
    turn = await running.next_turn()
    live.messages.release()
    with pytest.raises(SessionBusy):
        await alone
    await running.sessions.store.barrier()
    assert await running.sessions.store.query(work_rows.lease_of, running.id) is not None
    assert running.live.is_running(running.id)
    turn.may_end.set()
    await prompt
    assert not running.live.get(running.id).is_held


async def test_an_abort_ends_the_turn_that_waits_too(running: Running) -> None:
    first = running.prompt()
    turn = await running.next_turn()
    turn.may_finish.set()
    abort = asyncio.create_task(running.live.abort(running.id))
    await asyncio.wait_for(turn.finishing.wait(), 5)
    second = running.prompt()
    await asyncio.sleep(0)
    again = asyncio.create_task(running.live.abort(running.id))
    await asyncio.gather(first, second, abort, again)
    assert len(running.turns.running) == 1 and not running.live.is_running(running.id)


async def test_a_turn_whose_session_is_deleted_before_it_begins_ends_without_a_word(running: Running) -> None:
    live, deletion = running.live.get(running.id), SessionWork(kind=WorkKind.DELETE, directory="/w")
    live.begin(deletion)
    prompt = running.prompt()
    await asyncio.sleep(0)
    announced = len(running.sessions.announced)
    live.discard()
    live.end(deletion)
    await prompt
    assert running.turns.running == [] and len(running.sessions.announced) == announced
    assert not running.live.is_running(running.id) and not running.live.get(running.id).is_held


async def test_a_stale_generation_cannot_write(running: Running) -> None:
    """Another server has taken the session over: what the first one still has to say is refused."""
    prompt = running.prompt()
    turn = await running.next_turn()
    held = await running.sessions.store.query(work_rows.lease_of, running.id)
    assert held is not None
    await running.sessions.database.write(lambda connection: put_lease(connection, running.id, "another", held.generation + 1))
    late = session().model_copy(update={"title": "too late"})
    with pytest.raises(Exception, match="another server"):
        await running.sessions.store.write(running.id, "/w", lambda tx: tx.update(late))
    turn.may_end.set()
    await prompt
    assert (await running.sessions.store.session(running.id)).title != "too late"


# Other servers of the database.


async def test_a_prompt_waits_for_the_run_of_another_server_and_has_its_answer(running: Running) -> None:
    other = Leases(running.sessions.database, running.sessions.storage.writer)
    await other.acquire(running.id)
    announced = len(running.sessions.announced)
    prompt = running.prompt()
    await asyncio.sleep(0.1)
    assert running.turns.running == [] and not prompt.done()
    other.release(running.id)
    await asyncio.wait_for(prompt, 60)
    assert running.turns.running == [], "nothing is left to answer"
    assert len(running.sessions.announced) == announced
    await other.close()


async def test_another_server_ends_a_run(running: Running) -> None:
    other = Leases(running.sessions.database, running.sessions.storage.writer)
    running.live.watch()
    prompt = running.prompt()
    turn = await running.next_turn()
    turn.may_finish.set()
    await asyncio.wait_for(other.request_abort(running.id), 5)
    await asyncio.wait_for(prompt, 60)
    assert turn.finished
    await running.live.close()


async def test_a_server_that_the_database_has_not_heard_of_for_long_ends_its_runs_without_a_word(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.live.watch()
    prompt = running.prompt()
    turn = await running.next_turn()
    turn.may_finish.set()
    announced = len(running.sessions.announced)
    monkeypatch.setattr(running.leases, "heartbeat_age", lambda: 5.0)
    await asyncio.wait_for(prompt, 60)
    assert len(running.sessions.announced) == announced, "it is not idle: another server goes on"
    held = await running.sessions.store.query(work_rows.lease_of, running.id)
    assert held is not None and held.owner == running.leases.owner, "until it is stale"
    assert await running.live.statuses("/w") == {running.id: Busy()}
    await running.live.close()


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
    async with asyncio.timeout(60):
        while running.live.get(running.id).unstored_end:
            await asyncio.sleep(0.01)
    assert await running.live.statuses("/w") == {}
    await running.live.close()


async def test_a_prompt_that_another_server_has_accepted_gets_a_turn_before_the_session_is_idle(running: Running) -> None:
    """One turn: what that leaves without an answer does not keep the session busy for ever."""
    first = running.prompt()
    turn = await running.next_turn()
    await running.sessions.store.write(running.id, "/w", lambda tx: tx.put_message(message_row(user("msg_2"), waits=True)))
    turn.may_end.set()
    second = await running.next_turn()
    await first
    assert running.live.is_running(running.id) and running.live.get(running.id).status
    assert "session.idle" not in [event["type"] for event in running.sessions.announced]
    second.may_end.set()
    await running.live.get(running.id).idle()
    assert running.sessions.announced[-1]["type"] == "session.idle" and len(running.turns.running) == 2


async def test_a_prompt_that_another_server_has_accepted_is_left_to_it_when_this_one_stops(running: Running) -> None:
    """The run is ending, and is aborted before it is known that a prompt waits."""
    first = running.prompt()
    turn = await running.next_turn()
    await running.sessions.store.write(running.id, "/w", lambda tx: tx.put_message(message_row(user("msg_2"), waits=True)))
    stopping = asyncio.Event()
    live = running.live.get(running.id)
    set_idle = live.set_idle

    def stop_meanwhile(*args: Any, **kwargs: Any) -> asyncio.Future[EndOfRun]:
        stopping.set()
        return set_idle(*args, **kwargs)

    live.set_idle = stop_meanwhile  # type: ignore[method-assign]
    turn.may_end.set()
    await stopping.wait()
    await running.live.close()
    await first
    assert len(running.turns.running) == 1 and not running.live.get(running.id).status
