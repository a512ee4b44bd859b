"""Ends of turns that could not be stored are tried again, later and later, until they are stored or their session is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from conversation import user
from session_parts import Sessions

from app.record.engine import Connection
from app.record.repositories import session_rows
from app.schema.message import AssistantMessage
from app.schema.session import Busy
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


class Trying:
    """`delays`: those that were asked for, instead of sleeping. Each ends when the test says so."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.store = Refusing(sessions.database, sessions.storage.writer, sessions.storage.publisher)
        self.at_work = LiveSessions(self.store, Leases(sessions.database, sessions.storage.writer))
        self.ends = UnstoredEnds(self.at_work)
        self.live = self.at_work.get("ses_1")
        self.delays: list[float] = []
        self._asked = asyncio.Semaphore(0)
        self._over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self._over.clear()
        self._asked.release()
        await self._over.wait()

    async def fail(self, times: int) -> None:
        """Returns when the next delay has begun."""
        self.ends.store_later(self.live, "/w")
        for _ in range(times):
            await asyncio.wait_for(self._asked.acquire(), 60)
            self._over.set()
        await asyncio.wait_for(self._asked.acquire(), 60)

    async def go_on(self) -> None:
        """To the end."""
        self._over.set()
        while self.live.closing:
            await asyncio.sleep(0)


@pytest.fixture
async def trying(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trying]:
    await sessions.put(user())
    trying = Trying(sessions)
    monkeypatch.setattr("app.turn.runs.turns.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": trying.sleep}))
    yield trying
    await trying.at_work.close()


async def test_delays_double_up_to_a_bound_until_the_record_is_closed(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    await trying.fail(8)
    assert trying.delays == [1, 2, 4, 8, 16, 32, 60, 60, 60] and trying.live.unstored_end
    assert [bool(record.exc_info) for record in caplog.records] == [True], "one traceback"
    trying.store.full = False
    await trying.go_on()
    prompt, answer = [message.info for message in (await trying.store.session_and_messages(trying.live.id))[1]]
    assert isinstance(answer, AssistantMessage) and answer.error is not None and answer.parent_id == prompt.id
    assert not trying.live.is_held and "stored now" in caplog.records[-1].message
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    await trying.fail(0)
    assert trying.delays[9:] == [1], "what fails again is tried again"


async def test_while_the_database_refuses_it_is_only_asked_each_second(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    trying.store.is_full = True
    await trying.fail(5)
    assert trying.delays == [1, *[PROBE_SECONDS] * 5]
    assert trying.store.refused == 0 and caplog.records == []
    trying.store.is_full = trying.store.full = False
    await trying.go_on()


async def test_a_session_that_is_gone_is_tried_no_more(trying: Trying, caplog: pytest.LogCaptureFixture) -> None:
    """Another server has deleted it: it is not shown as busy either."""
    trying.live.show("/w", Busy())
    await trying.fail(0)

    def delete(connection: Connection) -> None:
        connection.execute(trying.sessions.storage.sql.delete_session, [{"gone": trying.live.id}])

    await trying.sessions.database.write(delete)
    await trying.go_on()
    assert trying.delays == [1] and caplog.records == [] and trying.live.status is None
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
