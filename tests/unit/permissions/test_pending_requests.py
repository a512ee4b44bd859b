"""Of several answers to one request exactly one is stored, and the caller gets that one: on SQLite and on PostgreSQL."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from polling import until
from postgres import migrated
from storage_parts import HeldDatabase, Storage, open_storage_at, session_row, writing

from app.events.bus.base import Event
from app.permissions import pending_requests as requests
from app.permissions.pending_requests import PendingRequests, RequestKind, RequestNotPending, Resolution
from app.record.engine import StorageError
from app.record.tables import APPROVAL, PENDING_REQUEST
from app.schema.permission import QuestionRequest


class Asking:
    """Requests of one server, each waited for by a task."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.callers: list[asyncio.Task[str]] = []
        kind = RequestKind("question", QuestionRequest.model_validate_json, orjson.loads, named("asked"), named("withdrawn"))
        self.pending: PendingRequests[QuestionRequest, str] = PendingRequests(kind, storage.database, storage.writer)

    @property
    def database(self) -> HeldDatabase:
        return self.storage.database

    async def ask(self, request_id: str, session_id: str = "ses_1") -> asyncio.Task[str]:
        """Returns when it is stored and listed."""
        caller = self.ask_soon(request_id, session_id)
        while f"asked {request_id}" not in self.storage.bus.order:
            await asyncio.sleep(0)
        return caller

    def ask_soon(self, request_id: str, session_id: str = "ses_1") -> asyncio.Task[str]:
        request = QuestionRequest(id=request_id, session_id=session_id, questions=[])
        self.callers.append(asyncio.create_task(self.pending.wait(self.pending.add("/d", request))))
        return self.callers[-1]

    async def answer(self, request_id: str, answer: str, *others: str, **options: Any) -> None:
        resolutions = [Resolution(key, event(f"{answer} {key}"), answer) for key in (request_id, *others)]
        await self.pending.resolve(resolutions[0], resolutions[1:], **options)

    async def listed(self) -> list[str]:
        return [request.id for request in await self.pending.all("/d")]


def event(name: str) -> Event:
    return Event(name, name.encode(), session_id="ses_1", directory="/d")


def named(name: str) -> Any:
    return lambda _directory, request: event(f"{name} {request.id}")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path) -> str:
    """Of a migrated database."""
    if request.param == "sqlite":
        shutil.copy(migrated_database, tmp_path / "opensession.db")
        return f"sqlite:///{tmp_path / 'opensession.db'}"
    return migrated(request.getfixturevalue("postgres"))


@pytest.fixture
async def asking(url: str) -> AsyncIterator[Asking]:
    storage = open_storage_at(url)
    await storage.writer.commit(writing((storage.sql.put_session, [session_row()])))
    asking = Asking(storage)
    yield asking
    asking.database.full = False
    for caller in asking.callers:
        caller.cancel()
    await asyncio.gather(*asking.callers, return_exceptions=True)
    asking.database.gate.set()
    await storage.writer.barrier()
    await asking.pending.close()
    storage.database.close()


async def test_of_answers_that_two_servers_accept_one_counts(asking: Asking, url: str) -> None:
    await asking.ask("que_1")
    other = Asking(open_storage_at(url))
    outcomes = await asyncio.gather(
        *(server.answer("que_1", "yes") for server in (asking, other) for _ in range(3)), return_exceptions=True
    )
    assert outcomes.count(None) == 1
    other.database.close()


async def test_an_answer_that_is_refused_writes_nothing(asking: Asking) -> None:
    await asking.ask("que_1")
    await asking.answer("que_1", "no")
    approval = {"project_id": "p", "permission": "bash", "pattern": "*", "session_id": "ses_1"}
    with pytest.raises(RequestNotPending):
        await asking.answer("que_1", "yes", approvals=[approval])
    assert await asking.storage.rows(APPROVAL) == []


async def test_while_the_database_refuses_the_request_goes_on_waiting(asking: Asking) -> None:
    caller = await asking.ask("que_1")
    asking.database.full = True
    with pytest.raises(StorageError):
        await asking.answer("que_1", "yes")
    assert await asking.listed() == ["que_1"] and not caller.done()
    asking.database.full = False
    await asking.answer("que_1", "no")
    assert await caller == "no"


@pytest.mark.parametrize("is_first", [True, False])
async def test_others_are_answered_in_the_same_transaction_if_they_still_wait(asking: Asking, is_first: bool) -> None:
    callers = [await asking.ask(f"que_{n}") for n in range(3)]
    asking.database.gate.clear()
    all_of_them, one = ("que_0", "all", "que_1", "que_2"), ("que_1", "one")
    answers = [asyncio.create_task(asking.answer(*each)) for each in ((all_of_them, one) if is_first else (one, all_of_them))]
    await asyncio.sleep(0)
    asking.database.gate.set()
    first, second = await asyncio.gather(*answers, return_exceptions=True)
    assert first is None and (isinstance(second, RequestNotPending) if is_first else second is None)
    answered = ["all", "all" if is_first else "one", "all"]
    assert [await caller for caller in callers] == answered
    assert sorted(asking.storage.bus.order[3:]) == sorted(f"{answer} que_{n}" for n, answer in enumerate(answered))


async def test_a_client_that_hangs_up_does_not_leave_the_caller_waiting(asking: Asking) -> None:
    caller = await asking.ask("que_1")
    asking.database.gate.clear()
    answering = asyncio.create_task(asking.answer("que_1", "yes"))
    await asyncio.sleep(0)
    answering.cancel()
    await asyncio.wait({answering})
    asking.database.gate.set()
    assert await asyncio.wait_for(caller, 60) == "yes"


# Withdrawing.


async def cancelled(caller: asyncio.Task[str]) -> None:
    caller.cancel()
    await asyncio.wait({caller}, timeout=60)
    assert caller.cancelled()


async def test_a_request_that_is_withdrawn_on_its_way_to_the_disk_leaves_no_row(asking: Asking) -> None:
    asking.database.gate.clear()
    asking.storage.post(writing(events=[event("on its way")]))
    await asyncio.sleep(0)
    caller = asking.ask_soon("que_1")
    await asyncio.sleep(0)
    await cancelled(caller)
    asking.database.gate.set()
    await asking.storage.writer.barrier()
    assert await asking.storage.count(PENDING_REQUEST) == 0 and await asking.listed() == []


async def test_of_an_answer_and_a_withdrawal_the_first_counts(asking: Asking) -> None:
    caller = await asking.ask("que_1")
    asking.database.gate.clear()
    answering = asyncio.create_task(asking.answer("que_1", "yes"))
    await asyncio.sleep(0)
    await cancelled(caller)
    asking.database.gate.set()
    await answering
    await asking.storage.writer.barrier()
    assert asking.storage.bus.order == ["asked que_1", "yes que_1"]


async def test_a_withdrawal_that_cannot_be_stored_is_made_up_for(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RETRY_SECONDS", 0.01)
    caller = await asking.ask("que_1")
    asking.database.full = True
    await cancelled(caller)
    assert await asking.listed() == [] and await asking.storage.count(PENDING_REQUEST) == 1
    with pytest.raises(StorageError):
        await asking.ask_soon("que_2")
    for request_id in ("que_1", "que_2"):
        with pytest.raises(RequestNotPending):
            await asking.pending.find(request_id)
    asking.database.full = False
    await until(lambda: "withdrawn que_1" in asking.storage.bus.order)
    assert await asking.storage.count(PENDING_REQUEST) == 0


# After a restart.


async def restarted(asking: Asking) -> Asking:
    """A server that finds what another one, which is gone, had asked."""
    await asking.ask("que_1")
    later = Asking(asking.storage)
    assert [request.id for request in await later.pending.adopt_orphans()] == ["que_1"]
    return later


async def test_what_was_left_behind_goes_on_under_its_id(asking: Asking) -> None:
    later = await restarted(asking)
    caller = later.ask_soon("que_new")
    while asking.storage.bus.order.count("asked que_1") < 2:
        await asyncio.sleep(0)
    assert await later.listed() == ["que_1"]
    await later.answer("que_1", "yes")
    assert await caller == "yes"


async def test_an_answer_before_the_call_asks_again_is_kept_for_it(asking: Asking) -> None:
    later = await restarted(asking)
    await later.answer("que_1", "yes")
    assert await later.listed() == []
    with pytest.raises(RequestNotPending):
        await later.answer("que_1", "no")
    assert await later.ask_soon("que_new") == "yes"
    assert asking.storage.bus.order == ["asked que_1", "yes que_1"]


async def test_an_answer_while_the_call_asks_again_reaches_it(asking: Asking) -> None:
    later = await restarted(asking)
    later.database.gate.clear()
    answering = asyncio.create_task(later.answer("que_1", "yes"))
    await asyncio.sleep(0)
    caller = later.ask_soon("que_new")
    await asyncio.sleep(0)
    later.database.gate.set()
    await answering
    assert await caller == "yes"
    assert asking.storage.bus.order == ["asked que_1", "yes que_1"] and await later.listed() == []


async def test_a_call_that_need_not_ask_again_gets_the_answer_there_is(asking: Asking) -> None:
    later = await restarted(asking)
    again = QuestionRequest(id="que_new", session_id="ses_1", questions=[])
    await later.answer("que_1", "yes")
    assert await later.pending.take_orphan(again.model_copy(update={"session_id": "ses_2"})) is None, "it is of other words"
    assert await later.pending.take_orphan(again) == "yes"
    assert await later.pending.take_orphan(again) is None


# Through another server.


async def test_an_answer_that_another_server_stores_reaches_the_caller(asking: Asking, url: str) -> None:
    caller = await asking.ask("que_1")
    other = Asking(open_storage_at(url))
    assert (await other.pending.find("que_1")).request.id == "que_1"
    await other.answer("que_1", "yes")
    assert await asyncio.wait_for(caller, 60) == "yes"
    await asking.storage.writer.barrier()
    assert await asking.storage.count(PENDING_REQUEST) == 0
    other.database.close()


async def test_an_answer_whose_caller_is_killed_waits_for_the_call_that_asks_again(
    asking: Asking, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "POLL_SECONDS", 60)  # it never learns of the answer
    await asking.ask("que_1")
    other = Asking(open_storage_at(url))
    await other.answer("que_1", "yes")
    later = Asking(asking.storage)
    await later.pending.adopt_orphans()
    assert await later.ask_soon("que_new") == "yes"
    assert asking.storage.bus.order == ["asked que_1"], "it was answered already"
    other.database.close()
