import asyncio

import pytest
from session_parts import DIRECTORY, Sessions

from app.schema.session import Busy
from app.storage.engine import StorageError
from app.storage.writer import Lease


async def test_a_session_whose_end_cannot_be_stored_stays_busy(sessions: Sessions) -> None:
    await sessions.statuses.set("ses_1", DIRECTORY, Busy())
    sessions.store.hold(Lease("ses_1", "another server took it", 1))
    with pytest.raises(StorageError):
        await sessions.statuses.set_idle("ses_1", DIRECTORY)
    assert sessions.statuses.is_busy("ses_1")
    sessions.store.release("ses_1")
    await sessions.statuses.set_idle("ses_1", DIRECTORY)
    assert not sessions.statuses.is_busy("ses_1")


async def test_a_waiter_that_is_cancelled_leaves_no_session_busy(sessions: Sessions) -> None:
    await sessions.statuses.set("ses_1", DIRECTORY, Busy())
    sessions.database.gate.clear()
    ending = sessions.statuses.set_idle("ses_1", DIRECTORY)

    async def wait() -> None:
        await ending

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    sessions.database.gate.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and not sessions.statuses.is_busy("ses_1")


async def test_the_end_of_one_turn_does_not_end_the_next(sessions: Sessions) -> None:
    await sessions.statuses.set("ses_1", DIRECTORY, Busy())
    ending = sessions.statuses.set_idle("ses_1", DIRECTORY)
    sessions.statuses.mark_busy("ses_1", DIRECTORY)
    await ending
    assert await sessions.statuses.of_directory(DIRECTORY) == {"ses_1": Busy()}
