"""Threads that are shared out: what hangs takes no more than its owner's share, and keeps no process alive."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from polling import until

from app.util.shared_threads import WORKING_FOR, Owner, SharedThreads, work_in

SOON = 10.0


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What hangs waits for it."""
    event = threading.Event()
    yield event
    event.set()


def submit(threads: SharedThreads, owner: Owner, *args: Any) -> Any:
    token = WORKING_FOR.set(owner)
    try:
        return threads.submit(*args)
    finally:
        WORKING_FOR.reset(token)


def test_results_and_errors_come_back() -> None:
    threads = SharedThreads(4, 2, 2, "test")
    assert [threads.submit(pow, 2, n).result(SOON) for n in range(20)] == [2**n for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(SOON)


HANGS: dict[str, tuple[list[Owner], Owner]] = {
    "a user": ([Owner("anna", f"/a{n}") for n in range(20)], Owner("bert", "/b")),
    "a directory of theirs": ([Owner("anna", "/a")] * 20, Owner("anna", "/b")),
    "a directory without users": ([Owner("", "/a")] * 20, Owner("", "/b")),
    "directories, and the server's own work": ([Owner("", "/a")] * 20 + [Owner("", "/b")] * 20, Owner()),
}


@pytest.mark.parametrize(("hangs", "works"), HANGS.values(), ids=HANGS)
def test_others_have_threads_though_all_of_one_owner_s_hang(hanging: threading.Event, hangs: list[Owner], works: Owner) -> None:
    threads = SharedThreads(16, 6, 3, "test")
    stuck = [submit(threads, owner, hanging.wait) for owner in hangs]
    assert submit(threads, works, lambda: "done").result(SOON) == "done"
    hanging.set()
    assert all(each.result(SOON) for each in stuck), "what waited for its share is done too"


def test_no_more_threads_are_used_than_there_may_be(hanging: threading.Event) -> None:
    threads = SharedThreads(5, 3, 3, "test")
    running = threading.Semaphore(0)

    def hang() -> bool:
        running.release()
        return hanging.wait()

    work = [submit(threads, Owner(f"u{n}"), hang) for n in range(9)]
    assert all(running.acquire(timeout=SOON) for _ in range(5))
    assert not running.acquire(timeout=0.1)
    hanging.set()
    assert all(each.result(SOON) for each in work)


def test_what_is_cancelled_before_it_begins_is_left_out(hanging: threading.Event) -> None:
    threads, done = SharedThreads(1, 1, 1, "test"), []
    first = threads.submit(hanging.wait)
    second = threads.submit(done.append, 1)
    assert second.cancel()
    hanging.set()
    assert first.result(SOON) and threads.submit(list, done).result(SOON) == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loop_takes_them_and_a_process_ends_though_one_hangs(loop: str) -> None:
    program = f"""
import asyncio, threading, {loop}
from app.util.shared_threads import SharedThreads, work_in
async def main():
    asyncio.get_running_loop().set_default_executor(SharedThreads(4, 2, 2, "test"))
    work_in("/a")
    stuck = [asyncio.create_task(asyncio.to_thread(threading.Event().wait)) for _ in range(4)]
    await asyncio.sleep(0)
    work_in("/b")
    print(await asyncio.to_thread(lambda: "worked"))
{loop}.run(main())
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "worked\n"), done.stderr
    assert time.monotonic() - began < 30


async def test_a_task_s_work_is_its_owner_s_and_so_is_that_of_tasks_it_starts() -> None:
    async def seen() -> Owner:
        return WORKING_FOR.get()

    async def request() -> Owner:
        WORKING_FOR.set(Owner("anna"))
        work_in("/a")
        return await asyncio.create_task(seen())

    assert await asyncio.create_task(request()) == Owner("anna", "/a")
    assert WORKING_FOR.get() == Owner()


async def test_a_failure_leaves_nothing_for_the_garbage_collector() -> None:
    class Held:
        """What a call that fails has at hand."""

    def fail(held: Held) -> None:
        raise ValueError(str(held))

    threads, held = SharedThreads(2, 2, 2, "test"), Held()
    seen = weakref.ref(held)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="Held"):
            await asyncio.get_running_loop().run_in_executor(threads, fail, held)
        del held
        await until(lambda: seen() is None, seconds=SOON)
    finally:
        gc.enable()
