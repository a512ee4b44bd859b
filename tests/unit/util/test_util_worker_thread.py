"""A thread that works for event loops: in order, for who still waits, and to the end."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from app.util.worker_thread import WorkerThread


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    worker = WorkerThread("worker")
    yield worker
    worker.close()


async def test_it_does_what_it_is_given_in_order_on_its_own_thread(worker: WorkerThread) -> None:
    did: list[int] = []
    await asyncio.gather(*(worker.do(lambda n=n: did.append(n)) for n in range(100)))
    assert did == list(range(100))
    assert (await worker.do(threading.current_thread)).name == "worker"


async def test_an_error_is_for_who_waits_alone(worker: WorkerThread) -> None:
    failing, working = worker.do(lambda: 1 // 0), worker.do(lambda: 1)
    with pytest.raises(ZeroDivisionError):
        await failing
    assert await working == 1


async def test_what_is_cancelled_before_it_begins_is_left_out(worker: WorkerThread) -> None:
    may_go_on, did = threading.Event(), []
    first, second, third = (worker.do(lambda n=n: may_go_on.wait(10) and did.append(n)) for n in range(3))
    second.cancel()
    may_go_on.set()
    await asyncio.gather(first, third)
    assert did == [0, 2]


async def test_what_is_cancelled_when_it_has_begun_is_done(worker: WorkerThread) -> None:
    begun, may_go_on, did = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert may_go_on.wait(10)
        did.append(1)

    cancelled = worker.do(work)
    await asyncio.to_thread(begun.wait, 10)
    cancelled.cancel()
    may_go_on.set()
    assert await worker.do(lambda: 2) == 2
    assert did == [1] and cancelled.cancelled()


def test_it_goes_on_when_a_loop_that_waited_is_closed(worker: WorkerThread) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    async def leave() -> None:
        worker.do(lambda: (begun.set(), may_go_on.wait(10)))
        await asyncio.to_thread(begun.wait, 10)

    async def come() -> int:
        async with asyncio.timeout(60):
            return await worker.do(lambda: 3)

    asyncio.run(leave())
    may_go_on.set()
    assert asyncio.run(come()) == 3


async def test_it_ends_when_all_is_done() -> None:
    worker, may_go_on, did = WorkerThread("worker"), threading.Event(), []
    waiting = [worker.do(lambda n=n: may_go_on.wait(10) and did.append(n)) for n in range(3)]
    may_go_on.set()
    worker.close()
    assert did == [0, 1, 2]
    await asyncio.gather(*waiting)
