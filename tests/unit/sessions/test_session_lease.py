"""A session runs in one place: a lease that another live server holds is respected, a dead one's is taken over."""

import asyncio
import time
from pathlib import Path

import pytest
from session_parts import Sessions, more_sessions, user
from storage_parts import open_storage, saying

from app.record.engine import Connection
from app.record.repositories import work_rows
from app.record.tables import LEASE
from app.record.writer import StaleLease
from app.schema.errors import SessionBusy
from app.sessions.lease import DEAD_AFTER_MS, Leases
from app.sessions.session_tx import SessionTx
from app.util import clock
from app.util.data_files import ServerLocks


@pytest.fixture
async def other(sessions: Sessions, tmp_path: Path) -> Sessions:
    """Another server on the same database."""
    return more_sessions(open_storage(tmp_path / "opensession.db"))


@pytest.fixture
def locks(tmp_path: Path) -> ServerLocks:
    return ServerLocks(tmp_path / "servers")


async def hold_as(sessions: Sessions, owner: str, age: int = 0, generation: int = 4) -> None:
    """`age`: milliseconds since the last heartbeat."""
    row = {"session_id": "ses_1", "owner": owner, "generation": generation, "heartbeat": clock.now_ms() - age}

    def put(connection: Connection) -> None:
        connection.execute(LEASE.delete())
        connection.execute(LEASE.insert(), row)

    await sessions.database.write(put)


async def take_over_dead(sessions: Sessions) -> set[str]:
    return {*await sessions.leases.take_over(sessions.leases.find_dead(await sessions.store.query(work_rows.leases)))}


async def generation(sessions: Sessions) -> int:
    (row,) = await sessions.storage.rows(LEASE)
    return int(row.generation)


async def test_a_change_releases_its_lease_together_with_what_it_stores(sessions: Sessions, other: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    earlier = sessions.post(user("msg_1"))
    ending = sessions.live.get("ses_1").set_idle("/d", releases_lease=True)
    sessions.leases.release("ses_1", ending)
    await asyncio.gather(earlier, ending)
    assert await sessions.store.query(work_rows.leases) == []
    assert (await other.leases.acquire("ses_1")).generation == 2
    await other.close()


async def test_a_change_that_is_to_release_a_lease_of_the_past_is_refused(sessions: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    await hold_as(sessions, "elsewhere")
    with pytest.raises(StaleLease):
        await sessions.live.get("ses_1").set_idle("/d", releases_lease=True)
    (held,) = await sessions.store.query(work_rows.leases)
    assert held.owner == "elsewhere"


async def test_a_lease_is_released_though_the_change_that_is_to_release_it_is_refused(sessions: Sessions) -> None:
    sessions.store.hold(lease := await sessions.leases.acquire("ses_1"))

    def release_and_refuse(tx: SessionTx) -> None:
        tx.release(lease)
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
    await hold_as(sessions, "elsewhere", age=DEAD_AFTER_MS + 1000)
    assert await take_over_dead(sessions) == {"ses_1"}
    assert await generation(sessions) == 5


async def test_of_two_servers_that_take_over_one_has_the_lease(sessions: Sessions, other: Sessions) -> None:
    await hold_as(sessions, "elsewhere", age=DEAD_AFTER_MS + 1000)
    dead = sessions.leases.find_dead(await sessions.store.query(work_rows.leases))
    assert [{*await of.leases.take_over(dead)} for of in (sessions, other)] == [{"ses_1"}, set()]
    with pytest.raises(SessionBusy):
        await other.leases.acquire("ses_1")
    await other.close()


async def test_nothing_runs_in_a_session_before_it_is_recovered(sessions: Sessions) -> None:
    await hold_as(sessions, "elsewhere", age=DEAD_AFTER_MS + 1000)
    acquiring = asyncio.create_task(sessions.leases.acquire("ses_1"))
    assert await take_over_dead(sessions) == {"ses_1"}
    await sessions.put(user("msg_1"))
    assert not acquiring.done() and await generation(sessions) == 5
    await sessions.leases.mark_recovered({"ses_1"})
    assert (await acquiring).generation == 6


async def test_a_server_that_locks_its_file_lives_whatever_its_heartbeat_says(
    sessions: Sessions, locks: ServerLocks, tmp_path: Path
) -> None:
    living = ServerLocks(tmp_path / "servers")
    living.hold("living")
    guarded = Leases(sessions.storage.database, sessions.storage.writer, locks)
    await hold_as(sessions, "living", age=10 * DEAD_AFTER_MS)
    with pytest.raises(SessionBusy):
        await guarded.acquire("ses_1")
    assert guarded.find_dead(await sessions.store.query(work_rows.leases)) == []
    living.release()
    assert len(guarded.find_dead(await sessions.store.query(work_rows.leases))) == 1, "without a file the heartbeat decides"


async def test_a_server_whose_file_is_not_locked_is_dead_at_once(sessions: Sessions, locks: ServerLocks, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "killed.lock").touch()
    guarded = Leases(sessions.storage.database, sessions.storage.writer, locks)
    await hold_as(sessions, "killed")
    assert len(guarded.find_dead(await sessions.store.query(work_rows.leases))) == 1


async def test_who_was_taken_over_from_cannot_write(sessions: Sessions, other: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    await hold_as(sessions, other.leases.owner)
    with pytest.raises(StaleLease):
        await sessions.put(user("msg_1"))
    assert await other.store.messages("ses_1") == []
    await other.close()


async def test_who_was_taken_over_from_does_not_drop_the_new_lease(sessions: Sessions, other: Sessions) -> None:
    await sessions.leases.acquire("ses_1")
    await hold_as(sessions, other.leases.owner)
    sessions.leases.release("ses_1")
    await sessions.store.barrier()
    assert [row.owner for row in await sessions.storage.rows(LEASE)] == [other.leases.owner]
    await other.close()


async def test_a_lease_acquired_again_while_the_old_one_is_released_stands(sessions: Sessions) -> None:
    """One turn ends and the next begins at once: both changes may go in one transaction."""
    await sessions.leases.acquire("ses_1")
    sessions.database.gate.clear()
    sessions.storage.post(saying("on its way", session_id="ses_other"), "ses_other")
    await asyncio.sleep(0)
    sessions.leases.release("ses_1")
    acquiring = asyncio.create_task(sessions.leases.acquire("ses_1"))
    await asyncio.sleep(0)
    sessions.database.gate.set()
    sessions.store.hold(await acquiring)
    await sessions.put(user("msg_1"))
    assert len(await sessions.read()) == 1


async def test_what_is_abandoned_refuses_every_write_and_is_taken_over_when_it_is_stale(sessions: Sessions) -> None:
    await hold_as(sessions, sessions.leases.owner, age=DEAD_AFTER_MS + 1000)
    sessions.store.hold(sessions.leases.abandon("ses_1"))
    with pytest.raises(StaleLease):
        await sessions.put(user("msg_1"))
    sessions.store.release("ses_1")
    assert await take_over_dead(sessions) == {"ses_1"}


async def test_a_lease_that_could_not_be_freed_is_freed_with_the_next_heartbeat(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.sessions.lease.HEARTBEAT_SECONDS", 0.05)
    await sessions.leases.acquire("ses_1")
    sessions.database.full = True
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


async def test_a_client_s_change_is_stored_though_a_run_ends_meanwhile(sessions: Sessions) -> None:
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    sessions.database.gate.clear()
    sessions.storage.post(saying("on its way", session_id="ses_other"), "ses_other")
    await asyncio.sleep(0)
    change = sessions.post(user("msg_1"))
    sessions.store.release("ses_1")
    sessions.leases.release("ses_1")
    sessions.database.gate.set()
    await change
    assert (await sessions.store.message("ses_1", "msg_1")).info.id == "msg_1"


async def test_what_two_servers_offer_is_taken_over_once_and_neither_waits(sessions: Sessions, other: Sessions) -> None:
    await asyncio.wait_for(asyncio.gather(sessions.leases.offer(["ses_1", "ses_gone"]), other.leases.offer(["ses_1"])), 5)
    dead = other.leases.find_dead(await other.store.query(work_rows.leases))
    assert [{*await of.leases.take_over(dead)} for of in (sessions, other)] == [{"ses_1"}, set()]
    await other.close()


async def cancelled_acquisition(sessions: Sessions, *, is_back: bool) -> None:
    """One that is cancelled while its commit is on its way, or has just come back."""
    sessions.database.gate.clear()
    acquiring = asyncio.create_task(sessions.leases.acquire("ses_1"))
    await asyncio.sleep(0)
    if is_back:
        stored = sessions.storage.post(saying("behind it"))
        stored.add_done_callback(lambda _: acquiring.cancel())
    else:
        acquiring.cancel()
    sessions.database.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    for _ in range(2):  # what is given back is posted when the acquisition is stored
        await sessions.storage.writer.barrier()


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_lease_that_nobody_waits_for_any_more_is_free(sessions: Sessions, other: Sessions, is_back: bool) -> None:
    await cancelled_acquisition(sessions, is_back=is_back)
    (row,) = await sessions.storage.rows(LEASE)
    assert row.owner == "" and sessions.leases.held("ses_1") is None
    assert (await other.leases.acquire("ses_1")).generation == row.generation + 1
    await other.close()


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_lease_that_was_held_before_is_held_on_by_who_holds_it(sessions: Sessions, is_back: bool) -> None:
    held = await sessions.leases.acquire("ses_1")
    await cancelled_acquisition(sessions, is_back=is_back)
    (row,) = await sessions.storage.rows(LEASE)
    assert (row.owner, row.generation) == (held.owner, held.generation) and sessions.leases.held("ses_1") == held


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
    (row,) = await sessions.storage.rows(LEASE)
    assert (row.owner, row.generation) == (lease.owner, lease.generation) and sessions.leases.held("ses_1") == lease
