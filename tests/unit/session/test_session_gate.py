"""Who waits for whom at a session's gate, and who is refused."""

import asyncio
from itertools import product

import pytest

from app.schema.errors import SessionBusy
from app.session.gate import Hold, HoldKind, SessionGate

SESSION = "ses_1"
SHARING = {HoldKind.PROMPT, HoldKind.READ}
BRIEF = SHARING | {HoldKind.EDIT}
NEVER_REFUSED = SHARING | {HoldKind.TURN, HoldKind.DELETE}
BESIDE = {
    *product(SHARING, SHARING | {HoldKind.TURN, HoldKind.SHELL}),
    *((HoldKind.TURN, held) for held in SHARING),
}
"""(asked for, held): begin at once."""


@pytest.fixture
def gate() -> SessionGate:
    return SessionGate()


def is_granted(hold: Hold) -> bool:
    return hold.granted.done()


@pytest.mark.parametrize("kind", HoldKind)
async def test_a_session_that_nobody_holds_is_held_at_once(gate: SessionGate, kind: HoldKind) -> None:
    hold = gate.request(SESSION, kind)
    assert is_granted(hold) and gate.is_held(SESSION) and not gate.is_held("ses_2")
    gate.release(hold)
    gate.release(hold)
    assert not gate.is_held(SESSION)


@pytest.mark.parametrize(("asked", "held"), list(product(HoldKind, HoldKind)), ids=lambda kind: kind.name.lower())
async def test_what_meets_what(gate: SessionGate, asked: HoldKind, held: HoldKind) -> None:
    first = gate.request(SESSION, held)
    if asked not in NEVER_REFUSED and held not in BRIEF:
        with pytest.raises(SessionBusy):
            gate.request(SESSION, asked)
        return
    second = gate.request(SESSION, asked)
    assert is_granted(second) is ((asked, held) in BESIDE)
    gate.release(first)
    assert is_granted(second)
    gate.release(second)
    assert not gate.is_held(SESSION)


@pytest.mark.parametrize("waiting", [HoldKind.EDIT, HoldKind.SHELL, HoldKind.REVERT, HoldKind.SUMMARIZE])
async def test_the_turn_of_a_prompt_comes_before_what_waits_for_the_prompt(gate: SessionGate, waiting: HoldKind) -> None:
    """It is refused then: nothing may come between a prompt and its turn."""
    prompt = gate.request(SESSION, HoldKind.PROMPT)
    refused = gate.request(SESSION, waiting)
    turn = gate.request(SESSION, HoldKind.TURN)
    assert is_granted(turn)
    with pytest.raises(SessionBusy):
        await refused.granted
    gate.release(prompt)
    gate.release(refused)
    gate.release(turn)
    assert not gate.is_held(SESSION)


async def test_edits_at_once_queue_in_their_order(gate: SessionGate) -> None:
    order: list[int] = []

    async def edit(number: int) -> None:
        async with gate.hold(SESSION, HoldKind.EDIT):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(edit(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]


async def test_once_a_deletion_waits_nothing_new_begins(gate: SessionGate) -> None:
    running, prompt = gate.request(SESSION, HoldKind.TURN), gate.request(SESSION, HoldKind.PROMPT)
    deletion = gate.request(SESSION, HoldKind.DELETE)
    later = [gate.request(SESSION, kind) for kind in (HoldKind.PROMPT, HoldKind.READ, HoldKind.TURN)]
    gate.release(running)
    assert not is_granted(deletion)
    gate.release(prompt)
    assert is_granted(deletion) and not any(map(is_granted, later))
    gate.release(deletion)
    assert all(map(is_granted, later))


async def test_turns_of_one_session_follow_each_other(gate: SessionGate) -> None:
    first, second = gate.request(SESSION, HoldKind.TURN), gate.request(SESSION, HoldKind.TURN)
    prompt = gate.request(SESSION, HoldKind.PROMPT)
    assert is_granted(first) and is_granted(prompt) and not is_granted(second)
    gate.release(first)
    assert is_granted(second)


async def test_who_is_cancelled_while_waiting_leaves_the_queue(gate: SessionGate) -> None:
    first = gate.request(SESSION, HoldKind.EDIT)

    async def edit() -> None:
        async with gate.hold(SESSION, HoldKind.EDIT):
            raise AssertionError("must not begin")

    waiting = asyncio.create_task(edit())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    gate.release(first)
    assert waiting.cancelled() and not gate.is_held(SESSION)
