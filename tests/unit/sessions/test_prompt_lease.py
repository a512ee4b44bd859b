"""A turn's lease comes with the commit of its prompt, or not at all."""

import asyncio
from pathlib import Path

import pytest
from refused_commits import refused_commits
from session_parts import DIRECTORY, Sessions, more_sessions, user
from storage_parts import open_storage

from app.record.engine import StorageError
from app.record.tables import LEASE
from app.record.writer import Lease
from app.schema.errors import SessionBusy
from app.sessions.live import busy_in
from app.sessions.rows import message_row
from app.sessions.session_tx import SessionTx


@pytest.fixture
async def other(sessions: Sessions, tmp_path: Path) -> Sessions:
    """Another server on the same database."""
    return more_sessions(open_storage(tmp_path / "opensession.db"))


async def prompt(sessions: Sessions) -> Lease | None:
    """Stores a prompt, and keeps the lease that comes with it."""

    def store(tx: SessionTx) -> Lease | None:
        tx.put_message(message_row(user("msg_1"), waits=True))
        return sessions.leases.acquire_free(tx.connection, "ses_1", busy_in(DIRECTORY))

    lease = await sessions.store.write("ses_1", DIRECTORY, store)
    if lease is not None:
        sessions.leases.keep(lease)
    return lease


async def test_a_free_session_is_held_when_its_prompt_is_stored(sessions: Sessions, other: Sessions) -> None:
    lease = await prompt(sessions)
    assert lease is not None and sessions.leases.held("ses_1") == lease
    (row,) = await sessions.storage.rows(LEASE)
    assert (row.owner, row.generation) == (lease.owner, lease.generation)
    assert (row.directory, row.status) == (DIRECTORY, '{"type":"busy"}')
    with pytest.raises(SessionBusy):
        await other.leases.acquire("ses_1")
    await other.close()


async def test_a_prompt_that_is_refused_leaves_the_session_free(sessions: Sessions) -> None:
    with refused_commits() as commits, pytest.raises(StorageError):
        commits.refuses = True
        await prompt(sessions)
    assert sessions.leases.held("ses_1") is None
    assert await sessions.storage.rows(LEASE) == []


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
    prompting = asyncio.create_task(prompt(sessions))
    await asyncio.sleep(0)
    sessions.database.gate.set()
    await asyncio.gather(on_its_way, last)
    lease = await prompting
    assert lease is not None
    sessions.store.hold(lease)
    await sessions.put(user("msg_3"))
    assert len(await sessions.read()) == 4
