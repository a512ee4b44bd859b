"""Ends of turns that could not be stored are tried again, later and later, until they are stored or their session is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conversation import user
from session_parts import Sessions

from app.record.engine import Connection
from app.record.repositories import session_rows
from app.schema.message import AssistantMessage
from app.sessions.lease import Leases
from app.sessions.live import LiveSessions, SessionWork, WorkKind
from app.sessions.store import Store
from app.turn.runs.turns import PROBE_SECONDS, UnstoredEnds


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


class WithWaits:
    """asyncio, whose sleeps are these waits."""

    def __init__(self, waits: Waits) -> None:
        self.sleep = waits.sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class Trying:
    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.store = Refusing(sessions.database, sessions.storage.sql, sessions.storage.writer, sessions.storage.publisher)
        self.waits = Waits()
        self.sessions_at_work = LiveSessions(self.store, Leases(sessions.database, sessions.storage.writer))
        self.ends = UnstoredEnds(self.sessions_at_work)
        self.live = self.sessions_at_work.get("ses_1")

    async def fail(self, times: int) -> None:
        self.ends.store_later(self.live, "/w")
        for _ in range(times):
            await self.waits.next()
            self.waits.end()
        await self.waits.next()


@pytest.fixture
async def trying(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trying]:
    await sessions.put(user())
    trying = Trying(sessions)
    monkeypatch.setattr("app.turn.runs.turns.asyncio", WithWaits(trying.waits))
    yield trying
    await trying.sessions_at_work.close()


async def test_delays_double_up_to_a_bound_and_one_traceback_is_logged(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    await trying.fail(8)
    assert trying.waits.delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [bool(record.exc_info) for record in caplog.records] == [True]
    assert trying.live.unstored_end


async def test_once_it_can_be_stored_the_record_is_closed_and_that_is_logged(
    trying: Trying, caplog: pytest.LogCaptureFixture
) -> None:
    await trying.fail(2)
    trying.store.full = False
    trying.waits.end()
    while trying.live.closing:
        await asyncio.sleep(0)
    messages = await trying.store.messages(trying.live.id)
    answer = messages[-1].info
    assert isinstance(answer, AssistantMessage) and answer.error is not None and answer.parent_id == messages[0].info.id
    assert not trying.live.is_held
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "stored now" in caplog.records[-1].message


async def test_while_the_database_refuses_it_is_only_asked_each_second(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    trying.store.is_full = True
    await trying.fail(5)
    assert trying.waits.delays == [1, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS, PROBE_SECONDS]
    assert trying.store.refused == 0 and caplog.records == []
    trying.store.is_full = trying.store.full = False
    trying.waits.end()
    while trying.live.closing:
        await asyncio.sleep(0)


async def test_a_session_that_is_gone_is_tried_no_more(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    await trying.fail(0)

    def delete(connection: Connection) -> None:
        connection.execute(trying.sessions.storage.sql.delete_session, [{"gone": trying.live.id}])

    await trying.sessions.database.write(delete)
    trying.waits.end()
    while trying.live.closing:
        await asyncio.sleep(0)
    assert trying.waits.delays == [1] and caplog.records == []
    assert await trying.store.query(session_rows.stored_session, trying.live.id) is None


async def test_who_deletes_a_session_has_it_forgotten(trying: Trying) -> None:
    await trying.fail(1)
    trying.live.discard()
    assert not trying.live.unstored_end
    refused = trying.store.refused
    await asyncio.sleep(0)
    assert trying.store.refused == refused and not trying.live.is_held


async def test_a_session_at_work_is_left_to_its_turn(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    trying.store.full = False
    turn = SessionWork(kind=WorkKind.TURN, directory="/w")
    trying.live.begin(turn)
    await trying.fail(2)
    assert trying.live.unstored_end and caplog.records == []
    await trying.ends.store(trying.live)
    trying.live.end(turn)
    assert not trying.live.unstored_end


async def test_what_fails_again_after_it_was_stored_is_tried_again(trying: Trying) -> None:
    await trying.fail(0)
    trying.store.full = False
    trying.waits.end()
    while trying.live.closing:
        await asyncio.sleep(0)
    await trying.fail(0)
    assert trying.waits.delays == [1, 1]
