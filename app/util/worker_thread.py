"""A thread that does one thing after another for event loops and other threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """To hand something over and its outcome back takes four fifths of what it takes with an executor of one thread."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any] | Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What has not begun when its future is cancelled is left out."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.put((work, done))
        return done

    def wait_for(self, work: Callable[[], T]) -> T:
        """For a thread that is no event loop's."""
        done: Future[T] = Future()
        self._waiting.put((work, done))
        return done.result()

    def close(self) -> None:
        """Waits until all is done."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """False at the end."""
        task = self._waiting.get()
        if task is None:
            return False
        work, done = task
        if not done.cancelled():
            _hand_back(done, *_outcome(work))
        return True


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to who waits
        return None, error


def _hand_back(done: asyncio.Future[Any] | Future[Any], result: Any, error: BaseException | None) -> None:
    if isinstance(done, Future):
        return _tell(done, result, error)
    with suppress(RuntimeError):  # the loop is closed
        done.get_loop().call_soon_threadsafe(_tell, done, result, error)
    return None


def _tell(done: asyncio.Future[Any] | Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
