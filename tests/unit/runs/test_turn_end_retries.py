"""Ends of turns that could not be stored are tried again, later and later, until they are stored or their session is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversation import user
from session_parts import Sessions

from app.runs.turn_end_retries import PROBE_SECONDS, TurnEndRetries
from app.schema.message import AssistantMessage
from app.session.gate import HoldKind, SessionGate
from app.session.lease import Leases
from app.session.status import Statuses
from app.session.store import Store
from app.storage.engine import Connection
from app.storage.repositories import session_rows


class Refusing(Store):
    """A store whose commits raise while it is full; `is_full` says whether it knows."""

    full = True
    is_full = False
    refused = 0

    async def accepts_writes(self) -> bool:
        return not self.is_full and await super().accepts_writes()

    async def write(self, *change: Any) -> Any:
        if self.full:
            self.refused += 1
            raise OSError("the disk is full")
        return await super().write(*change)


class Waits:
    """Instead of sleeping: the delays asked for, each of which ends when the test says so."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._asked = asyncio.Semaphore(0)
        self._over: asyncio.Future[None]

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self._over = asyncio.get_running_loop().create_future()
        self._asked.release()
        await self._over

    async def next(self) -> None:
        """Returns when a delay has begun."""
        await asyncio.wait_for(self._asked.acquire(), 5)

    def end(self) -> None:
        self._over.set_result(None)


class Trying:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.store = Refusing(sessions.database, sessions.storage.sql, sessions.storage.writer, sessions.storage.publisher)
        self.gate = SessionGate()
        self.waits = Waits()
        leases = Leases(sessions.database, sessions.storage.writer)
        self.retries = TurnEndRetries(self.store, Statuses(self.store), self.gate, leases, self.waits.sleep)
        self.id = "ses_1"

    async def fail(self, times: int) -> None:
        self.retries.add(self.id, "/w")
        for _ in range(times):
            await self.waits.next()
            self.waits.end()
        await self.waits.next()


@pytest.fixture
async def trying(sessions: Sessions) -> AsyncIterator[Trying]:
    await sessions.put(user())
    trying = Trying(sessions)
    yield trying
    await trying.retries.close()


async def test_delays_double_up_to_a_bound_and_one_traceback_is_logged(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    await trying.fail(8)
    assert trying.waits.delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [bool(record.exc_info) for record in caplog.records] == [True]
    assert trying.id in trying.retries


async def test_once_it_can_be_stored_the_record_is_closed_and_that_is_logged(
    trying: Trying, caplog: pytest.LogCaptureFixture
) -> None:
    await trying.fail(2)
    trying.store.full = False
    trying.waits.end()
    while trying.id in trying.retries:
        await asyncio.sleep(0)
    messages = await trying.store.messages(trying.id)
    answer = messages[-1].info
    assert isinstance(answer, AssistantMessage) and answer.error is not None and answer.parent_id == messages[0].info.id
    assert not trying.gate.is_held(trying.id)
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "stored now" in caplog.records[-1].message


async def test_while_the_database_refuses_it_is_only_asked_each_second(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    trying.store.is_full = True
    await trying.fail(5)
    assert trying.waits.delays == [1, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS]
    assert trying.store.refused == 0 and caplog.records == []
    trying.store.is_full = trying.store.full = False
    trying.waits.end()
    while trying.id in trying.retries:
        await asyncio.sleep(0)


async def test_a_session_that_is_gone_is_tried_no_more(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    await trying.fail(0)

    def delete(connection: Connection) -> None:
        connection.execute(trying.sessions.storage.sql.delete_session, [{"gone": trying.id}])

    await trying.sessions.database.write(delete)
    trying.waits.end()
    while trying.id in trying.retries:
        await asyncio.sleep(0)
    assert trying.waits.delays == [1] and caplog.records == []
    assert await trying.store.query(session_rows.stored_session, trying.id) is None


async def test_who_deletes_a_session_has_it_forgotten(trying: Trying) -> None:
    await trying.fail(1)
    trying.retries.forget(trying.id)
    assert trying.id not in trying.retries
    refused = trying.store.refused
    await asyncio.sleep(0)
    assert trying.store.refused == refused and not trying.gate.is_held(trying.id)


async def test_a_session_at_work_is_left_to_its_turn(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    trying.store.full = False
    turn = trying.gate.request(trying.id, HoldKind.TURN)
    await trying.fail(2)
    assert trying.id in trying.retries and caplog.records == []
    await trying.retries.store_end(trying.id)
    trying.gate.release(turn)
    assert trying.id not in trying.retries


async def test_what_fails_again_after_it_was_stored_is_tried_again(trying: Trying) -> None:
    await trying.fail(0)
    trying.store.full = False
    trying.waits.end()
    while trying.id in trying.retries:
        await asyncio.sleep(0)
    await trying.fail(0)
    assert trying.waits.delays == [1, 1]
