"""What a client that comes back has missed."""

import asyncio

import pytest
from session_parts import DIRECTORY, Sessions, text_part, user

from app.events.bus.base import ENDED, StreamingParts
from app.events.bus.memory import MemoryBus
from app.record.repositories import journal_rows
from app.sessions import replay as replaying
from app.sessions.replay import Replay, ReplayPage
from app.util import clock


def replay_of(sessions: Sessions, keep_bytes: int = 10**9) -> Replay:
    return Replay(sessions.database, sessions.store, MemoryBus(), keep_bytes)


@pytest.fixture
async def replay(sessions: Sessions) -> Replay:
    """The journal has one session's two events; then three messages."""
    for number in range(3):
        await sessions.put(user(f"msg_{number}"))
    return replay_of(sessions)


async def test_a_journal_is_kept_within_its_bytes(sessions: Sessions, replay: Replay) -> None:
    newest = (await replay.page(4, None)).events[0]
    await replay_of(sessions, len(newest.payload)).trim()
    assert [event.seq for event in (await replay.page(4, None)).events] == [5]
    assert (await replay.page(3, None)).resync


async def test_a_long_journal_is_trimmed_in_steps_and_that_is_reported_between_two_pages(
    sessions: Sessions, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "TRIM_STEP", 2)
    monkeypatch.setattr(journal_rows, "PAGE_BYTES", 1)
    page, written = await replay.page(2, DIRECTORY), sessions.database.writes
    await replay_of(sessions, 1).trim()
    assert sessions.database.writes - written == 3 and (await replay.page(page.upto, DIRECTORY)).resync
    assert (await replay.page(5, None)) == ReplayPage([], 5) and (await replay.page(4, None)).resync


async def test_events_of_yesterday_are_forgotten(replay: Replay) -> None:
    later = clock.now_ms() / 1000 + replaying.KEEP_MS / 1000 + 60
    clock.set_source(lambda: later)
    await replay.trim()
    assert [(await replay.page(after, None)).resync for after in (4, 5)] == [True, False]


@pytest.mark.parametrize("removed", [True, False])
async def test_a_part_whose_last_event_is_on_its_way_is_not_given_again(
    sessions: Sessions, replay: Replay, removed: bool
) -> None:
    sessions.stream("prt_1", "Hello ")
    await sessions.store.barrier()
    part = text_part("prt_1", "Hello")
    if removed:
        stored = sessions.store.post_parts("ses_1", DIRECTORY, lambda tx: tx.remove_part("msg_1", "prt_1"), removed=[part])
    else:
        stored = sessions.post(part)
    assert await replay.streaming(DIRECTORY, 0) == StreamingParts({"prt_1": ENDED}, [])
    await stored
    await asyncio.sleep(0)
    assert await replay.streaming(DIRECTORY, 0) == StreamingParts({}, [])
