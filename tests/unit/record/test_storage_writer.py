"""The writer: grouped commits, announced in order, one bad change alone."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from database_meter import metered
from sqlalchemy.exc import OperationalError
from storage_parts import (
    HeldDatabase,
    Storage,
    delta,
    event,
    message_row,
    open_storage,
    part_row,
    put_lease,
    saying,
    session_row,
    writing,
)

from app.record.engine import StorageError
from app.record.postgres import OutcomeUnknown
from app.record.tables import EVENT, MESSAGE, PART, SESSION
from app.record.writer import Chain, Lease, StaleLease, Tx, Work, Writer, WriterStopped
from app.schema.errors import Conflict


@asynccontextmanager
async def behind_a_first_commit(storage: Storage) -> AsyncIterator[None]:
    """A first change is on its way to the disk and held there: what the block posts waits behind it, and is done after it."""
    storage.database.gate.clear()
    storage.post(saying("first", session_id="ses_first"), "ses_first")
    await asyncio.sleep(0)
    yield
    storage.database.gate.set()
    async with asyncio.timeout(60):
        await storage.writer.barrier()


def refusing(error: Exception) -> Callable[[Tx], None]:
    def refuse(_tx: Tx) -> None:
        raise error

    return refuse


async def in_order(storage: Storage, table: Any) -> list[str]:
    return [row.id for row in sorted(await storage.rows(table), key=lambda row: row.seq)]


async def test_changes_that_arrive_during_a_commit_share_the_next_one(storage: Storage) -> None:
    async with behind_a_first_commit(storage):
        for n in range(50):
            storage.post(saying(f"{n}", session_id=f"ses_{n}"), f"ses_{n}")
    assert storage.database.writes == 2


async def test_events_are_announced_after_their_commit_in_the_order_of_posting(storage: Storage) -> None:
    async with behind_a_first_commit(storage):
        for n in range(3):
            storage.post(saying(f"{n}a", f"{n}b", session_id=f"ses_{n % 2}"), f"ses_{n % 2}")
        assert storage.bus.published == []
    assert storage.bus.order == ["first", "0a", "0b", "1a", "1b", "2a", "2b"]
    assert await storage.count(EVENT) == 7


async def test_journal_numbers_are_contiguous_and_journaled_events_alone_have_one(storage: Storage) -> None:
    await storage.writer.commit(writing(events=[event("a"), event("passing", journaled=False), event("b")]))
    async with behind_a_first_commit(storage):
        storage.post(saying("refused", then=refusing(Conflict("no"))))
        for n in range(5):
            storage.post(saying(f"{n}"))
    assert [one.seq for one in storage.bus.events] == [1, None, 2, 3, 4, 5, 6, 7, 8]
    assert [row.seq for row in await storage.rows(EVENT)] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("error", [Conflict("taken"), StaleLease("stale"), KeyError("a bug")])
async def test_one_bad_change_takes_no_other_down(storage: Storage, error: Exception) -> None:
    async with behind_a_first_commit(storage):
        changes = saying("before"), saying("bad", then=refusing(error)), saying("after")
        done = [storage.post(change) for change in changes]
    assert await asyncio.gather(*done, return_exceptions=True) == [None, error, None]
    assert storage.bus.order == ["first", "before", "after"]


async def test_a_row_that_the_database_refuses_fails_its_own_change_alone_and_that_wholly(storage: Storage) -> None:
    orphan, session = [message_row("msg_1", "ses_none")], [session_row()]
    async with behind_a_first_commit(storage):
        good = storage.post(storage.putting(session=session, events=[event("good")]))
        half = storage.post(storage.putting(session=[session_row("ses_2")], message=orphan, events=[event("half")]))
    good_outcome, half_outcome = await asyncio.gather(good, half, return_exceptions=True)
    assert good_outcome is None and isinstance(half_outcome, StorageError)
    assert storage.bus.order == ["first", "good"] and await storage.count(SESSION) == 1


async def test_a_callback_that_raises_takes_nothing_along(storage: Storage) -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    async with behind_a_first_commit(storage):
        storage.post(saying("1")).add_done_callback(lambda _: 1 / 0)
        storage.post(saying("2"))
    assert storage.bus.order == ["first", "1", "2"] and isinstance(failures[0], ZeroDivisionError)


async def test_a_writer_that_is_cancelled_leaves_nobody_waiting(storage: Storage) -> None:
    async with behind_a_first_commit(storage):
        stopped = [storage.post(saying(f"{n}")) for n in range(2)]
        storage.delta(delta("text"))
        (worker,) = [task for task in asyncio.all_tasks() if task.get_name() == "writer"]
        worker.cancel()
        async with asyncio.timeout(60):
            results = await asyncio.gather(*stopped, return_exceptions=True)
        assert [type(result) for result in results] == [WriterStopped] * 2
    await storage.writer.commit(saying("later"))
    assert storage.bus.order == ["text", "later"]


async def test_a_drain_waits_for_what_was_posted_before_it_and_for_no_other(storage: Storage) -> None:
    storage.database.gate.clear()
    before, posting = storage.post(saying("before")), asyncio.Event()
    drained = asyncio.create_task(storage.writer.barrier())

    async def keep_it_busy() -> None:
        while not drained.done():
            last = storage.post(saying("behind"))
            await asyncio.sleep(0)
            posting.set()
        await last

    others = asyncio.create_task(keep_it_busy())
    await posting.wait()
    assert not drained.done()
    storage.database.gate.set()
    await asyncio.wait_for(drained, 60)
    assert before.done()
    await others


async def test_what_is_behind_a_failed_change_of_its_chain_is_not_stored(storage: Storage) -> None:
    await storage.put(session=[session_row()])
    chain = Chain()
    async with behind_a_first_commit(storage):
        done = [
            storage.post(refusing(Conflict("no")), chain=chain),
            storage.post(storage.putting(message=[message_row("msg_behind")]), chain=chain),
            storage.post(storage.putting(message=[message_row("msg_other")]), chain=Chain()),
        ]
        storage.delta(delta("behind"), chain)
        storage.delta(delta("other"))
    outcomes = await asyncio.gather(*done, return_exceptions=True)
    assert [isinstance(outcome, Conflict) for outcome in outcomes] == [True, True, False]
    later = await asyncio.gather(storage.post(writing(), chain=chain), return_exceptions=True)
    assert later == outcomes[:1]
    assert [row.id for row in await storage.rows(MESSAGE)] == ["msg_other"]
    assert storage.bus.order == ["first", "other"]


class Away(HeldDatabase):
    """Cannot be reached."""

    async def write(self, work: Any) -> Any:
        self.writes += 1
        raise OperationalError("COMMIT", {}, Exception("the server closed the connection"))


@pytest.mark.parametrize(("retry_seconds", "attempts"), [(0, 1), (60, 6)])
async def test_a_database_that_is_away_is_tried_no_longer_than_agreed(
    storage: Storage, retry_seconds: float, attempts: int
) -> None:
    database = Away("sqlite://")
    writer = Writer(database, storage.publisher.publish, retry_seconds)
    changes = [writer.post(saying(f"{n}")) for n in range(5)]
    async with asyncio.timeout(60):
        results = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(result) for result in results] == [OperationalError] * 5
    assert database.writes == attempts


BROKEN = OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"), connection_invalidated=True)


@pytest.mark.parametrize("error", [BROKEN, OutcomeUnknown()], ids=["broken", "unknown"])
async def test_what_may_be_committed_is_not_written_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    write, errors = storage.database.write, iter([error])

    async def stored_and_failed(work: Any) -> Any:
        result = await write(work)
        if (raised := next(errors, None)) is not None:
            raise raised
        return result

    monkeypatch.setattr(storage.database, "write", stored_and_failed)
    chain = Chain()
    posts = [storage.post(saying(name), chain=None if name == "first" else chain) for name in ("first", "second", "third")]
    outcomes = await asyncio.gather(*posts, return_exceptions=True)
    assert outcomes == [error] * 3 and storage.bus.order == []
    assert sorted(row.payload for row in await storage.rows(EVENT)) == ["first", "second", "third"]
    await storage.writer.commit(saying("fourth"))
    assert storage.bus.order == ["fourth"]


async def test_the_work_of_a_change_sees_what_was_posted_before_it(storage: Storage) -> None:
    seen: list[list[str]] = []

    def look_and_put(number: int) -> Work[None]:
        def work(tx: Tx) -> None:
            seen.append([row.id for row in tx.connection.execute(SESSION.select().order_by(SESSION.c.seq))])
            tx.put(storage.sql.put_session, session_row(f"ses_{number}"))

        return work

    async with behind_a_first_commit(storage):
        for number in range(3):
            storage.post(look_and_put(number))
    assert seen == [[], ["ses_0"], ["ses_0", "ses_1"]] and storage.database.writes == 2


async def test_a_waiter_that_is_cancelled_neither_undoes_its_change_nor_holds_up_others_by_its_failure(storage: Storage) -> None:
    async with behind_a_first_commit(storage):
        storage.post(saying("bad", then=refusing(Conflict("no")))).cancel()
        waiting = asyncio.create_task(storage.writer.commit(saying("kept")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        storage.post(saying("good"))
    assert storage.bus.order == ["first", "kept", "good"]


async def test_rows_of_many_changes_keep_the_order_of_posting(storage: Storage) -> None:
    await storage.put(session=[session_row()])
    async with behind_a_first_commit(storage):
        for n in range(4):
            storage.post(storage.putting(message=[message_row(f"msg_{n}")], part=[part_row(f"prt_{n}", f"msg_{n}")]))
    assert await in_order(storage, MESSAGE) == ["msg_0", "msg_1", "msg_2", "msg_3"]
    assert await in_order(storage, PART) == ["prt_0", "prt_1", "prt_2", "prt_3"]


async def test_ends_of_turns_that_come_together_take_as_many_statements_as_one(tmp_path: Path, migrated_database: Path) -> None:
    def end(storage: Storage, number: int) -> Work[None]:
        session = f"ses_{number}"
        basis = [{"of_session": session, "basis": "T0"}]
        return storage.putting(
            message=[message_row("msg_1", session)], part=[part_row("prt_1", "msg_1", session)], diff_basis=basis
        )

    shutil.copy(migrated_database, tmp_path / "opensession.db")
    with metered() as spent:
        storage = open_storage(tmp_path / "opensession.db")
        await storage.put(session=[session_row(f"ses_{number}") for number in range(11)])
        before = spent.copy()
        await storage.writer.commit(end(storage, 0))
        alone = spent.copy()
        await asyncio.gather(*(storage.post(end(storage, number)) for number in range(1, 11)))
        together = spent.since(alone)
    assert together.commits == 1 and together.statements == alone.since(before).statements
    assert {row.diff_basis for row in await storage.rows(SESSION)} == {"T0"}
    storage.database.close()


async def test_a_row_put_again_keeps_its_place(storage: Storage) -> None:
    await storage.put(session=[session_row()])
    for message_id, body in (("msg_b", "1"), ("msg_a", "1"), ("msg_b", "2")):
        await storage.put(message=[message_row(message_id, body=body)])
    rows = sorted(await storage.rows(MESSAGE), key=lambda row: row.seq)
    assert [(row.id, row.body) for row in rows] == [("msg_b", "2"), ("msg_a", "1")]


async def test_a_delete_stays_between_what_was_posted_before_and_after_it(storage: Storage) -> None:
    await storage.put(session=[session_row()])

    def delete(part_id: str) -> Work[None]:
        return writing((storage.sql.delete_part, [{"of_session": "ses_1", "of_message": "msg_1", "gone": part_id}]))

    put_1, put_2 = (storage.putting(part=[part_row(part_id)]) for part_id in ("prt_1", "prt_2"))
    async with behind_a_first_commit(storage):
        for change in (put_1, delete("prt_1"), put_1, put_2, delete("prt_2")):
            storage.post(change)
    assert [row.id for row in await storage.rows(PART)] == ["prt_1"]


@pytest.mark.parametrize(("owner", "generation"), [("me", 1), ("me", 3), ("other", 2)])
async def test_a_write_under_a_lease_that_does_not_stand_is_refused(storage: Storage, owner: str, generation: int) -> None:
    await storage.put(session=[session_row()])
    await storage.database.write(lambda connection: put_lease(connection, "ses_1", "me", 2))
    lease = Lease("ses_1", owner, generation)
    with pytest.raises(StaleLease):
        await storage.writer.commit(storage.putting(message=[message_row("msg_1")], events=[event("stale")], lease=lease))
    assert await storage.count(MESSAGE) == 0 and storage.bus.published == []
