"""A turn's lease comes with the commit of its prompt, or not at all."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from refused_commits import refused_commits
from session_parts import DIRECTORY, Sessions, more_sessions, user
from storage_parts import open_storage

from app.schema.errors import SessionBusy
from app.session.lease import PromptLease
from app.session.rows import message_row
from app.session.session_tx import SessionTx
from app.session.status import busy_in
from app.storage.engine import StorageError
from app.storage.tables import LEASE
from app.storage.writer import Lease


@pytest.fixture
async def other(sessions: Sessions, tmp_path: Path) -> Sessions:
    """Another server on the same database."""
    return more_sessions(open_storage(tmp_path / "opensession.db"))


def wanted(sessions: Sessions) -> PromptLease:
    return PromptLease(sessions.leases, "ses_1", busy_in(DIRECTORY))


async def prompt(sessions: Sessions, lease: PromptLease) -> None:
    def store(tx: SessionTx) -> Lease | None:
        tx.put_message(message_row(user("msg_1"), waits=True))
        return lease.acquire(tx.connection)

    stored = sessions.store.post("ses_1", DIRECTORY, store)
    stored.add_done_callback(lambda done: lease.keep(done.result()) if done.exception() is None else None)
    await asyncio.shield(stored)


async def test_a_free_session_is_held_when_its_prompt_is_stored(sessions: Sessions, other: Sessions) -> None:
    lease = wanted(sessions)
    await prompt(sessions, lease)
    assert lease.lease is not None and sessions.leases.held("ses_1") == lease.lease
    (row,) = await sessions.storage.rows(LEASE)
    assert (row.owner, row.generation) == (lease.lease.owner, lease.lease.generation)
    assert (row.directory, row.status) == (DIRECTORY, '{"type":"busy"}')
    with pytest.raises(SessionBusy):
        await other.leases.acquire("ses_1")
    await other.close()


async def test_a_prompt_is_stored_though_another_server_has_the_session(sessions: Sessions, other: Sessions) -> None:
    elsewhere = await other.leases.acquire("ses_1")
    lease = wanted(sessions)
    await prompt(sessions, lease)
    assert lease.lease is None and sessions.leases.held("ses_1") is None
    assert len(await sessions.read()) == 1
    assert [row.owner for row in await sessions.storage.rows(LEASE)] == [elsewhere.owner]
    await other.close()


async def test_a_session_that_is_held_here_keeps_its_lease(sessions: Sessions) -> None:
    before = await sessions.leases.acquire("ses_1")
    lease = wanted(sessions)
    await prompt(sessions, lease)
    assert lease.lease is None and sessions.leases.held("ses_1") == before
    assert [row.generation for row in await sessions.storage.rows(LEASE)] == [before.generation]


async def test_a_prompt_that_is_refused_leaves_the_session_free(sessions: Sessions) -> None:
    lease = wanted(sessions)
    with refused_commits() as commits, pytest.raises(StorageError):
        commits.refuses = True
        await prompt(sessions, lease)
    assert lease.lease is None and sessions.leases.held("ses_1") is None
    assert await sessions.storage.rows(LEASE) == []


async def test_a_lease_that_no_run_wants_is_given_back(sessions: Sessions, other: Sessions) -> None:
    lease = wanted(sessions)
    await prompt(sessions, lease)
    lease.give_back()
    await sessions.store.barrier()
    await other.leases.acquire("ses_1")
    await other.close()


async def test_a_prompt_whose_sender_is_cancelled_on_the_way_holds_no_session(sessions: Sessions, other: Sessions) -> None:
    lease = wanted(sessions)
    sessions.database.gate.clear()
    sending = asyncio.create_task(prompt(sessions, lease))
    await asyncio.sleep(0)
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
    lease.give_back()
    sessions.database.gate.set()
    await sessions.store.barrier()
    await sessions.store.barrier()  # the lease is given back behind the prompt
    assert len(await sessions.read()) == 1
    await other.leases.acquire("ses_1")
    await other.close()


async def test_what_was_written_under_the_lease_before_stands_beside_the_next_one(sessions: Sessions) -> None:
    """One run ends and a prompt comes at once: all may go in one transaction."""
    sessions.store.hold(await sessions.leases.acquire("ses_1"))
    sessions.database.gate.clear()
    on_its_way = asyncio.create_task(sessions.put(user("msg_0")))
    await asyncio.sleep(0)
    last = asyncio.create_task(sessions.put(user("msg_2")))
    await asyncio.sleep(0)
    sessions.store.release("ses_1")
    sessions.leases.release("ses_1")
    lease = wanted(sessions)
    prompting = asyncio.create_task(prompt(sessions, lease))
    await asyncio.sleep(0)
    sessions.database.gate.set()
    await asyncio.gather(on_its_way, last, prompting)
    assert lease.lease is not None
    sessions.store.hold(lease.lease)
    await sessions.put(user("msg_3"))
    assert len(await sessions.read()) == 4
