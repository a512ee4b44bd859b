"""A session runs in one place: a lease that another live server holds is respected, a dead one's is taken over."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from session_parts import Sessions, more_sessions, user
from storage_parts import open_storage, saying

from app.schema.errors import Busy
from app.session.lease import DEAD_AFTER_MS
from app.storage.tables import LEASE
from app.storage.writer import StaleLease
from app.util import clock


@pytest.fixture
async def other(sessions: Sessions, tmp_path: Path) -> Sessions:
    """Another server on the same database."""
    return more_sessions(open_storage(tmp_path / "opensession.db"))


async def hold_as(sessions: Sessions, owner: str, heartbeat: int) -> None:
    row = {"session_id": "ses_1", "owner": owner, "generation": 4, "heartbeat": heartbeat}
    await sessions.database.write(lambda c: c.execute(sessions.storage.sql.take_lease, [row]))


async def test_a_session_that_a_live_server_runs_is_busy_elsewhere(sessions: Sessions, other: Sessions) -> None:
    await sessions.leases.take("ses_1")
    with pytest.raises(Busy):
        await other.leases.take("ses_1")
    await other.close()


async def test_a_dropped_lease_may_be_taken_elsewhere(sessions: Sessions, other: Sessions) -> None:
    lease = await sessions.leases.take("ses_1")
    sessions.leases.drop("ses_1")
    await sessions.store.drain()
    taken = await other.leases.take("ses_1")
    assert taken.owner != lease.owner
    await other.close()


async def test_the_lease_of_a_process_that_is_gone_is_taken_over_at_once(sessions: Sessions) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    host = sessions.leases.owner.split(":")[0]
    await hold_as(sessions, f"{host}:{gone.pid}:1:x", clock.now_ms())
    lease = await sessions.leases.take("ses_1")
    assert lease.generation == 5


async def test_another_machines_lease_is_respected_until_its_heart_has_stopped_for_long(sessions: Sessions) -> None:
    await hold_as(sessions, f"elsewhere:{os.getpid()}:1:x", clock.now_ms() - DEAD_AFTER_MS // 2)
    with pytest.raises(Busy):
        await sessions.leases.take("ses_1")
    await hold_as(sessions, f"elsewhere:{os.getpid()}:1:x", clock.now_ms() - DEAD_AFTER_MS - 1)
    assert (await sessions.leases.take("ses_1")).generation == 5


async def test_who_was_taken_over_from_cannot_write(sessions: Sessions, other: Sessions) -> None:
    sessions.store.hold(await sessions.leases.take("ses_1"))
    await hold_as(sessions, other.leases.owner, clock.now_ms())
    with pytest.raises(StaleLease):
        await sessions.put(user("msg_1"))
    assert await other.store.messages("ses_1") == []
    await other.close()


async def test_who_was_taken_over_from_does_not_drop_the_new_lease(sessions: Sessions, other: Sessions) -> None:
    await sessions.leases.take("ses_1")
    await hold_as(sessions, other.leases.owner, clock.now_ms())
    sessions.leases.drop("ses_1")
    await sessions.store.drain()
    assert [row.owner for row in await sessions.storage.rows(LEASE)] == [other.leases.owner]
    await other.close()


async def test_a_lease_taken_anew_while_the_old_one_is_dropped_stands(sessions: Sessions) -> None:
    """One turn ends and the next begins at once: both changes may go in one transaction."""
    await sessions.leases.take("ses_1")
    sessions.database.gate.clear()
    sessions.storage.writer.post(saying("on its way", session_id="ses_other"))
    await asyncio.sleep(0)
    sessions.leases.drop("ses_1")
    taking = asyncio.create_task(sessions.leases.take("ses_1"))
    await asyncio.sleep(0)
    sessions.database.gate.set()
    sessions.store.hold(await taking)
    await sessions.put(user("msg_1"))
    assert len(await sessions.read()) == 1


async def test_leases_of_the_dead_are_cleared_and_others_stay(sessions: Sessions, other: Sessions) -> None:
    await hold_as(sessions, "elsewhere:1:1:x", clock.now_ms() - DEAD_AFTER_MS - 1)
    await sessions.leases.clear_dead()
    assert await sessions.storage.rows(LEASE) == []
    await other.leases.take("ses_1")
    await sessions.leases.clear_dead()
    assert len(await sessions.storage.rows(LEASE)) == 1
    await other.close()
