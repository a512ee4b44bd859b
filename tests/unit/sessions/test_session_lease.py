"""A session runs in one place: a lease that another live server holds is respected, a dead one's is taken over.

That of a turn comes with the commit of its prompt, or not at all.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from refused_commits import refused_commits
from session_parts import DIRECTORY, Sessions, more_sessions, user
from storage_parts import open_storage, saying

from app.record.engine import Connection, StorageError
from app.record.repositories import work_rows
from app.record.tables import LEASE
from app.record.writer import Lease, StaleLease
from app.schema.errors import SessionBusy
from app.sessions.lease import DEAD_AFTER_MS, Leases
from app.sessions.rows import message_row
from app.sessions.session_tx import SessionTx
from app.util import clock
from app.util.data_files import ServerLocks

STALE = DEAD_AFTER_MS + 1000


@pytest.fixture
async def other(sessions: Sessions, tmp_path: Path) -> AsyncIterator[Sessions]:
    """Another server on the same database."""
    opened = more_sessions(open_storage(tmp_path / "opensession.db"))
    yield opened
    await opened.close()


async def hold_as(sessions: Sessions, owner: str, age: int = 0) -> None:
    """With generation 4. `age`: milliseconds since the last heartbeat."""
    row = {"session_id": "ses_1", "owner": owner, "generation": 4, "heartbeat": clock.now_ms() - age}

    def put(connection: Connection) -> None:
        connection.execute(LEASE.delete())
        connection.execute(LEASE.insert(), row)

    await sessions.database.write(put)


async def dead(sessions: Sessions, leases: Leases | None = None) -> Any:
    return (leases or sessions.leases).find_dead(await sessions.store.query(work_rows.leases))


async def take_over_dead(sessions: Sessions) -> set[str]:
    return {*await sessions.leases.take_over(await dead(sessions))}


async def stored(sessions: Sessions) -> tuple[str, int]:
    """Owner and generation."""
    (row,) = await sessions.storage.rows(LEASE)
    return row.owner, row.generation


@asynccontextmanager
async def behind_a_commit(sessions: Sessions) -> AsyncIterator[None]:
    """What the block begins waits together behind a commit."""
    sessions.database.gate.clear()
    sessions.storage.post(saying("on its way", session_id="ses_other"), "ses_other")
    await asyncio.sleep(0)
    yield
    await asyncio.sleep(0)
    sessions.database.gate.set()


async def test_a_change_releases_its_lease_together_with_what_it_stores(sessions: Sessions, other: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    earlier = sessions.post(user("msg_1"))
    ending = sessions.live.get("ses_1").set_idle("/d", releases_lease=True)
    sessions.leases.release("ses_1", ending)
    await asyncio.gather(earlier, ending)
    assert await sessions.store.query(work_rows.leases) == []
    assert (await other.leases.acquire("ses_1")).generation == 2


async def test_a_lease_is_released_though_the_change_that_is_to_release_it_is_refused(sessions: Sessions) -> None:
    sessions.store.hold(lease := await sessions.leases.acquire("ses_1"))

    def release_and_refuse(tx: SessionTx) -> None:
        tx.tx.release(lease)
        raise SessionBusy("ses_1")

    refused = sessions.store.post("ses_1", "/d", release_and_refuse)
    sessions.leases.release("ses_1", refused)
    with pytest.raises(SessionBusy):
        await refused
    await sessions.store.barrier()
    assert await sessions.store.query(work_rows.leases) == []


async def test_a_lease_is_taken_over_when_its_heartbeat_is_stale(sessions: Sessions) -> None:
    await hold_as(sessions, "elsewhere", age=DEAD_AFTER_MS - 2000)
    assert await take_over_dead(sessions) == set()
    await hold_as(sessions, "elsewhere", age=STALE)
    assert await take_over_dead(sessions) == {"ses_1"}
    assert (await stored(sessions))[1] == 5


@pytest.mark.parametrize("is_offered", [False, True])
async def test_of_two_servers_that_take_over_one_has_the_lease(sessions: Sessions, other: Sessions, is_offered: bool) -> None:
    """Of what both have offered, and neither waits, too."""
    if is_offered:
        offers = sessions.leases.offer(["ses_1", "ses_gone"]), other.leases.offer(["ses_1"])
        await asyncio.wait_for(asyncio.gather(*offers), 60)
    else:
        await hold_as(sessions, "elsewhere", age=STALE)
    found = await dead(other)
    assert [{*await of.leases.take_over(found)} for of in (sessions, other)] == [{"ses_1"}, set()]
    with pytest.raises(SessionBusy):
        await other.leases.acquire("ses_1")


@pytest.mark.parametrize("age", [0, STALE])
async def test_an_abort_that_meets_a_killed_server_ends_what_goes_on(sessions: Sessions, other: Sessions, age: int) -> None:
    """Whether or not the others know yet that it is dead."""
    await hold_as(sessions, "elsewhere", age)
    aborting = asyncio.create_task(sessions.leases.request_abort("ses_1"))
    if age == 0:
        while not (await sessions.storage.rows(LEASE))[0].aborting:
            await asyncio.sleep(0.01)
        stale = LEASE.update().values(heartbeat=clock.now_ms() - STALE)
        await sessions.database.write(lambda connection: connection.execute(stale))
    await aborting
    assert await take_over_dead(other) == {"ses_1"}
    assert await other.leases.aborted_runs() == ["ses_1"]
    await other.leases.mark_recovered({"ses_1"}, {"ses_1"})
    await other.leases.acquire("ses_1")  # as the turn does that goes on
    assert await other.leases.aborted_runs() == ["ses_1"]


async def test_an_abort_that_meets_a_recovery_ends_what_goes_on(sessions: Sessions) -> None:
    await hold_as(sessions, "elsewhere", age=STALE)
    await take_over_dead(sessions)
    await sessions.leases.request_abort("ses_1")
    await sessions.leases.mark_recovered({"ses_1"}, {"ses_1"})
    assert await sessions.leases.aborted_runs() == ["ses_1"]


async def test_what_a_server_gives_up_in_the_middle_of_a_run_it_recovers_before_it_runs_again(sessions: Sessions) -> None:
    """Otherwise its next prompt would go on with a call that had begun, and run it again."""
    leases = sessions.leases
    given_up = await leases.acquire("ses_1")
    leases.abandon("ses_1")
    assert await sessions.database.write(lambda connection: leases.acquire_free(connection, "ses_1", "/d")) is None
    asking = asyncio.create_task(leases.acquire("ses_1"))
    await asyncio.sleep(0.3)
    assert not asking.done()
    stale = LEASE.update().values(heartbeat=clock.now_ms() - STALE)
    await sessions.database.write(lambda connection: connection.execute(stale))
    assert await take_over_dead(sessions) == {"ses_1"} and not asking.done()
    await leases.mark_recovered({"ses_1"})
    assert (await asyncio.wait_for(asking, 60)).generation > given_up.generation + 1


@pytest.mark.parametrize("asks_first", [True, False])
async def test_nothing_runs_in_a_session_before_it_is_recovered(sessions: Sessions, asks_first: bool) -> None:
    await hold_as(sessions, "elsewhere", age=STALE)
    acquiring = [asyncio.create_task(sessions.leases.acquire("ses_1"))] if asks_first else []
    assert await take_over_dead(sessions) == {"ses_1"}
    acquiring = acquiring or [asyncio.create_task(sessions.leases.acquire("ses_1"))]
    await sessions.put(user("msg_1"))
    assert not acquiring[0].done() and (await stored(sessions))[1] == 5
    await sessions.leases.mark_recovered({"ses_1"})
    assert (await acquiring[0]).generation == 6


async def test_a_server_lives_while_it_locks_its_file_and_is_dead_at_once_without(sessions: Sessions, tmp_path: Path) -> None:
    """Whatever its heartbeat says."""
    living = ServerLocks(tmp_path / "servers")
    living.hold("living")
    guarded = Leases(sessions.storage.database, sessions.storage.writer, ServerLocks(tmp_path / "servers"))
    await hold_as(sessions, "living", age=10 * DEAD_AFTER_MS)
    with pytest.raises(SessionBusy):
        await guarded.acquire("ses_1")
    assert await dead(sessions, guarded) == []
    living.release()
    assert len(await dead(sessions, guarded)) == 1, "without a file the heartbeat decides"
    (tmp_path / "servers" / "killed.lock").touch()
    await hold_as(sessions, "killed")
    assert len(await dead(sessions, guarded)) == 1


async def test_who_was_taken_over_from_cannot_write_nor_drop_the_new_lease(sessions: Sessions, other: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    await hold_as(sessions, other.leases.owner)
    with pytest.raises(StaleLease):
        await sessions.put(user("msg_1"))
    with pytest.raises(StaleLease):
        await sessions.live.get("ses_1").set_idle("/d", releases_lease=True)
    sessions.leases.release("ses_1")
    await sessions.store.barrier()
    assert (await other.store.session_and_messages("ses_1"))[1] == [] and await stored(sessions) == (other.leases.owner, 4)


async def test_a_lease_acquired_again_while_the_old_one_is_released_stands(sessions: Sessions) -> None:
    """One turn ends and the next begins at once: both changes may go in one transaction."""
    await sessions.leases.acquire("ses_1")
    async with behind_a_commit(sessions):
        sessions.leases.release("ses_1")
        acquiring = asyncio.create_task(sessions.leases.acquire("ses_1"))
    sessions.store.hold(await acquiring)
    await sessions.put(user("msg_1"))
    assert len(await sessions.read()) == 1


async def test_a_client_s_change_is_stored_though_a_run_ends_meanwhile(sessions: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    async with behind_a_commit(sessions):
        change = sessions.post(user("msg_1"))
        sessions.store.release("ses_1")
        sessions.leases.release("ses_1")
    await change
    assert (await sessions.store.message("ses_1", "msg_1")).info.id == "msg_1"


async def test_what_is_abandoned_refuses_every_write_and_is_taken_over_when_it_is_stale(sessions: Sessions) -> None:
    await hold_as(sessions, sessions.leases.owner, age=STALE)
    sessions.store.hold(sessions.leases.abandon("ses_1"))
    with pytest.raises(StaleLease):
        await sessions.put(user("msg_1"))
    sessions.store.release("ses_1")
    assert await take_over_dead(sessions) == {"ses_1"}


@pytest.mark.parametrize("is_recovered", [False, True])
async def test_a_lease_that_could_not_be_freed_is_freed_with_the_next_heartbeat(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, is_recovered: bool
) -> None:
    monkeypatch.setattr("app.sessions.lease.HEARTBEAT_SECONDS", 0.05)
    if is_recovered:
        await hold_as(sessions, "elsewhere", age=STALE)
        await take_over_dead(sessions)
    else:
        await sessions.leases.acquire("ses_1")
    sessions.database.full = True
    if is_recovered:
        await sessions.leases.mark_recovered({"ses_1"})
    else:
        sessions.leases.release("ses_1")
    await sessions.store.barrier()
    assert await sessions.store.query(work_rows.leases)
    sessions.database.full = False
    async with asyncio.timeout(60):
        while await sessions.store.query(work_rows.leases):
            await asyncio.sleep(0.01)


async def test_who_was_not_heard_of_for_long_is_told_though_a_heartbeat_is_stored_again(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a frozen process that wakes: its sessions may have been taken over before that heartbeat."""
    monkeypatch.setattr("app.sessions.lease.HEARTBEAT_SECONDS", 0.3)
    monkeypatch.setattr("app.sessions.lease.CONFIRMED_WITHIN_SECONDS", 0.1)
    await sessions.leases.acquire("ses_1")
    time.sleep(0.2)
    async with asyncio.timeout(30):
        while sessions.leases.heartbeat_age() > 0.2:
            await asyncio.sleep(0.001)
    monkeypatch.setattr("app.sessions.lease.CONFIRMED_WITHIN_SECONDS", 60.0)
    assert [sessions.leases.is_unconfirmed() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
async def test_a_lease_that_nobody_waits_for_any_more_is_free_or_as_it_was(
    sessions: Sessions, other: Sessions, is_back: bool, is_held: bool
) -> None:
    """It is cancelled while its commit is on its way, or has just come back."""
    held = await sessions.leases.acquire("ses_1") if is_held else None
    sessions.database.gate.clear()
    acquiring = asyncio.create_task(sessions.leases.acquire("ses_1"))
    await asyncio.sleep(0)
    if is_back:
        sessions.storage.post(saying("behind it")).add_done_callback(lambda _: acquiring.cancel())
    else:
        acquiring.cancel()
    sessions.database.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    for _ in range(2):  # what is given back is posted when the acquisition is stored
        await sessions.storage.writer.barrier()
    owner, generation = await stored(sessions)
    assert sessions.leases.held("ses_1") == held
    if held is None:
        assert owner == "" and (await other.leases.acquire("ses_1")).generation == generation + 1
    else:
        assert (owner, generation) == (held.owner, held.generation)


async def test_a_run_that_follows_a_cancelled_acquisition_keeps_its_own_lease(sessions: Sessions) -> None:
    sessions.database.gate.clear()
    cancelled = asyncio.create_task(sessions.leases.acquire("ses_1"))
    await asyncio.sleep(0)
    cancelled.cancel()
    following = asyncio.create_task(sessions.leases.acquire("ses_1"))
    sessions.database.gate.set()
    lease = await following
    for _ in range(2):
        await sessions.storage.writer.barrier()
    assert await stored(sessions) == (lease.owner, lease.generation) and sessions.leases.held("ses_1") == lease


# A turn's.


async def prompt(sessions: Sessions) -> Lease | None:
    """Stores a prompt, and keeps the lease that comes with it."""

    def store(tx: SessionTx) -> Lease | None:
        tx.put_message(message_row(user("msg_1"), waits=True))
        return sessions.leases.acquire_free(tx.connection, "ses_1", DIRECTORY)

    lease = await sessions.store.write("ses_1", DIRECTORY, store)
    if lease is not None:
        sessions.leases.keep(lease)
    return lease


async def test_a_free_session_is_held_when_its_prompt_is_stored(sessions: Sessions, other: Sessions) -> None:
    with refused_commits() as commits, pytest.raises(StorageError):
        commits.refuses = True
        await prompt(sessions)
    assert sessions.leases.held("ses_1") is None and await sessions.storage.rows(LEASE) == [], "and not before"
    lease = await prompt(sessions)
    assert lease is not None and sessions.leases.held("ses_1") == lease
    (row,) = await sessions.storage.rows(LEASE)
    assert (row.owner, row.generation) == (lease.owner, lease.generation)
    assert (row.directory, row.status) == (DIRECTORY, '{"type":"busy"}')
    with pytest.raises(SessionBusy):
        await other.leases.acquire("ses_1")


async def test_what_was_written_under_the_lease_before_stands_beside_the_next_one(sessions: Sessions) -> None:
    """One run ends and a prompt comes at once: all may go in one transaction."""
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    async with behind_a_commit(sessions):
        last = [sessions.post(user(message_id)) for message_id in ("msg_0", "msg_2")]
        sessions.store.release("ses_1")
        sessions.leases.release("ses_1")
        prompting = asyncio.create_task(prompt(sessions))
    await asyncio.gather(*last)
    lease = await prompting
    assert lease is not None
    sessions.store.hold(lease)
    await sessions.put(user("msg_3"))
    assert len(await sessions.read()) == 4
