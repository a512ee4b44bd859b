import asyncio

from session_parts import DIRECTORY, Sessions

from app.schema.session import Busy


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
