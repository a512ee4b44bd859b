"""Threads of which users and directories have shares: work that hangs in one's files leaves the others theirs."""

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LAST_WORK_SECONDS = 2.0
"""How long a server's end waits for running work. Work that hangs is left behind."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The user that work is for, and the directory in whose files it is done; empty if there is none."""

    user: str = ""
    directory: str = ""


NOBODY = Owner()
WORKING_FOR: ContextVar[Owner] = ContextVar("WORKING_FOR", default=NOBODY)
"""Tasks inherit it, so that a turn works for the user who sent its prompt."""


def work_in(directory: str) -> None:
    """From here on this task works in the directory's files."""
    owner = WORKING_FOR.get()
    if owner.directory != directory:
        WORKING_FOR.set(Owner(owner.user, directory))


class SharedThreads(ThreadPoolExecutor):
    """Work beyond its owner's share waits for earlier work of that owner. Other loops may use the threads after `shutdown`. The
    threads keep no process alive: the library joins its own at the end, for ever if one hangs. Loops accept no other class."""

    def __init__(self, most: int, per_user: int, per_directory: int, name: str) -> None:
        super().__init__(most, name)
        self._most = most
        self._per_user = per_user
        self._per_directory = per_directory
        self._name = name
        self._guard = threading.Condition()
        self._ready: SimpleQueue[tuple[Owner, Callable[[], None]]] = SimpleQueue()
        self._queues: defaultdict[Owner, deque[Callable[[], None]]] = defaultdict(deque)
        self._by_user: Counter[str] = Counter()
        self._by_directory: Counter[str] = Counter()
        self._begun = self._started = 0
        """Work that is ready or under way, and threads."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        with self._guard:
            self._queues[WORKING_FOR.get()].append(partial(_run, future, partial(fn, *args, **kwargs)))
            self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._guard:
            if cancel_futures:
                self._queues.clear()
            if wait:
                self._guard.wait_for(lambda: self._begun == 0, LAST_WORK_SECONDS)

    def _begin(self) -> None:
        """Begins all waiting work that has a share left."""
        for owner in [*self._queues]:
            while self._queues[owner] and self._has_share(owner):
                self._begun += 1
                self._by_user[owner.user] += 1
                self._by_directory[owner.directory] += 1
                self._ready.put((owner, self._queues[owner].popleft()))
            if not self._queues[owner]:
                del self._queues[owner]
        while self._started < self._begun:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()

    def _has_share(self, owner: Owner) -> bool:
        """Work for no user, or in no directory, counts only against all threads."""
        return (
            self._begun < self._most
            and (not owner.user or self._by_user[owner.user] < self._per_user)
            and (not owner.directory or self._by_directory[owner.directory] < self._per_directory)
        )

    def _work(self) -> None:
        while True:
            self._work_once(*self._ready.get())

    def _work_once(self, owner: Owner, call: Callable[[], None]) -> None:
        call()
        del call  # its failure holds the frames that it was raised in
        with self._guard:
            self._begun -= 1
            self._by_user -= Counter((owner.user,))  # removes zeros
            self._by_directory -= Counter((owner.directory,))
            self._begin()
            self._guard.notify_all()


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to who waits
        future.set_exception(error)
        del future, call  # as above
    else:
        future.set_result(result)


THREADS = SharedThreads(256, per_user=16, per_directory=6, name="shared")
"""For `asyncio.to_thread`, in a server. Some work never ends, as with a pipe that a project has for a file."""
