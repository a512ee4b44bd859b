"""What is done every few seconds is done beside a loop that stands still, but not for good."""

import asyncio
import time
from collections.abc import Callable

from app.util.tasks import LoopHeartbeat

PATIENCE = 30.0


def block_until(condition: Callable[[], bool]) -> None:
    """The loop stands still meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def test_it_beats_while_the_loop_stands_still() -> None:
    beats, seen = [0], [0]

    def beat() -> None:
        beats[0] += 1

    def see() -> None:
        seen[0] += 1

    heartbeat = LoopHeartbeat("heartbeat", 0.01, beat, see)
    block_until(lambda: beats[0] >= 5)
    assert seen == [0]
    async with asyncio.timeout(PATIENCE):
        while seen[0] < 5:
            await asyncio.sleep(0.001)
    heartbeat.close()
    ended = beats[0]
    await asyncio.sleep(0.05)
    assert beats == [ended]


async def test_it_ends_when_the_loop_hangs_and_goes_on_with_it() -> None:
    beats = [0]

    def beat() -> None:
        beats[0] += 1

    def none_for(seconds: float) -> bool:
        before = beats[0]
        time.sleep(seconds)
        return beats[0] == before

    heartbeat = LoopHeartbeat("heartbeat", 0.01, beat, hangs_after=0.3)
    block_until(lambda: none_for(0.3))
    hung_with = beats[0]
    async with asyncio.timeout(PATIENCE):
        while beats[0] == hung_with:
            await asyncio.sleep(0.001)
    heartbeat.close()


def test_it_ends_with_its_loop() -> None:
    async def start() -> LoopHeartbeat:
        return LoopHeartbeat("heartbeat", 0.01, lambda: None)

    asyncio.run(start())._thread.join(PATIENCE)
