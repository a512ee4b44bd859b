"""What waits and what is refused while something works on a session: the lock of its messages, and its works in their order."""

import asyncio
import weakref

import pytest
from session_parts import Sessions

from app.schema.errors import SessionBusy
from app.session.live import LiveSession, SessionWork, WorkKind


def work(kind: WorkKind) -> SessionWork:
    return SessionWork(kind=kind, directory="/w")


@pytest.fixture
async def live(sessions: Sessions) -> LiveSession:
    return sessions.live.get("ses_1")


@pytest.mark.parametrize("kind", WorkKind)
async def test_while_something_works_edits_and_whatever_needs_the_session_alone_are_refused(
    live: LiveSession, kind: WorkKind
) -> None:
    running = work(kind)
    live.begin(running)
    for other in (WorkKind.SHELL, WorkKind.REVERT, WorkKind.SUMMARY):
        with pytest.raises(SessionBusy):
            async with live.exclusive(work(other)):
                raise AssertionError("must not begin")
    with pytest.raises(SessionBusy):
        async with live.editing():
            raise AssertionError("must not begin")
    live.end(running)
    assert not live.is_held
    async with live.editing():
        assert live.is_held


@pytest.mark.parametrize("kind", [WorkKind.REVERT, WorkKind.SUMMARY, WorkKind.CLOSE, WorkKind.DELETE])
async def test_a_prompt_waits_for_what_has_the_messages_for_itself(live: LiveSession, kind: WorkKind) -> None:
    async with live.exclusive(work(kind)):
        assert live.messages.locked()
    assert not live.is_held


async def test_a_prompt_is_stored_beside_a_shell_line(live: LiveSession) -> None:
    async with live.exclusive(work(WorkKind.SHELL)):
        async with live.messages:
            assert live.is_held


async def test_the_turn_of_a_prompt_comes_before_what_waits_for_the_prompt(live: LiveSession) -> None:
    """It is refused then: nothing may come between a prompt and its turn."""
    await live.messages.acquire()

    async def edit() -> None:
        async with live.editing():
            raise AssertionError("must not begin")

    editing = asyncio.create_task(edit())
    await asyncio.sleep(0)
    turn = work(WorkKind.TURN)
    live.begin(turn)
    live.messages.release()
    with pytest.raises(SessionBusy):
        await editing
    live.end(turn)
    assert not live.is_held


async def test_edits_at_once_queue_in_their_order(live: LiveSession) -> None:
    order: list[int] = []

    async def edit(number: int) -> None:
        async with live.editing():
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(edit(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]


async def test_works_follow_each_other(live: LiveSession) -> None:
    first, second, third = work(WorkKind.SHELL), work(WorkKind.DELETE), work(WorkKind.TURN)
    for each in (first, second, third):
        live.begin(each)
    await live.first(first)
    waiting = asyncio.create_task(live.first(third))
    live.end(first)
    await live.first(second)
    await asyncio.sleep(0)
    assert not waiting.done()
    live.end(second)
    await waiting
    live.end(third)


async def test_a_session_is_forgotten_when_nothing_works_on_it(sessions: Sessions) -> None:
    live, turn = sessions.live.get("ses_1"), work(WorkKind.TURN)
    live.begin(turn)
    live.mark_busy("/w")
    live.end(turn)
    assert sessions.live.get("ses_1") is live and (await sessions.live.busy_sessions()) == {"ses_1"}
    live.forget_status()
    forgotten = weakref.ref(live)
    del live
    assert forgotten() is None and await sessions.live.busy_sessions() == set()
