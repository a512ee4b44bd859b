import asyncio

import pytest
from session_parts import DIRECTORY, Sessions

from app.schema.session import Busy
from app.storage.engine import StorageError
from app.storage.writer import Lease


async def test_a_session_whose_end_cannot_be_stored_stays_busy(sessions: Sessions) -> None:
    live = sessions.live.get("ses_1")
    await live.set_status(DIRECTORY, Busy())
    sessions.store.hold(Lease("ses_1", "another server took it", 1))
    with pytest.raises(StorageError):
        await live.set_idle(DIRECTORY)
    assert live.status is not None
    sessions.store.release("ses_1")
    await live.set_idle(DIRECTORY)
    assert live.status is None


async def test_a_waiter_that_is_cancelled_leaves_no_session_busy(sessions: Sessions) -> None:
    live = sessions.live.get("ses_1")
    await live.set_status(DIRECTORY, Busy())
    sessions.database.gate.clear()
    ending = live.set_idle(DIRECTORY)

    async def wait() -> None:
        await ending

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    sessions.database.gate.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and live.status is None


async def test_the_end_of_one_turn_does_not_end_the_next(sessions: Sessions) -> None:
    live = sessions.live.get("ses_1")
    await live.set_status(DIRECTORY, Busy())
    ending = live.set_idle(DIRECTORY)
    live.mark_busy(DIRECTORY)
    await ending
    assert await sessions.live.statuses(DIRECTORY) == {"ses_1": Busy()}
