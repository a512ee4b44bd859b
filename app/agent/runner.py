"""One task a session: a prompt starts it or joins it, an abort ends it, and the lease keeps other servers out meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.agent import stored_error
from app.agent.errors import aborted
from app.agent.instance import Instance
from app.agent.loop.turn import Turn
from app.agent.unsettled import Unsettled
from app.schema.errors import Aborted, Busy, MessageError
from app.schema.message import MessagePath
from app.schema.session import Busy as BusyStatus
from app.schema.session import Idle
from app.session.lease import Leases
from app.session.status import Statuses
from app.session.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_RUNNING = 100


@dataclass(slots=True)
class _Run:
    """`instance` is what the next turn runs with; None for work that is no turn."""

    directory: str
    instance: Instance | None = None
    joined: bool = False
    nested: bool = False
    ending: bool = False
    aborted: bool = False
    task: asyncio.Task[Any] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def join(self, instance: Instance) -> None:
        self.joined = True
        if instance.place.directory == self.directory:
            self.instance = instance

    def take_joined(self) -> bool:
        joined, self.joined = self.joined, False
        return joined


MakeTurn = Callable[[str, Instance, Callable[[], bool]], Turn]
"""(session, instance, joined) → the turn."""


class Runner:
    """At most `most_running` sessions are answered at once; others are busy and wait for their turn. A subagent's session runs
    in its parent's place: had it to wait, parents could wait for children for ever."""

    def __init__(
        self, store: Store, statuses: Statuses, leases: Leases, make_turn: MakeTurn, most_running: int = MOST_RUNNING
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._leases = leases
        self._make_turn = make_turn
        self._runs: dict[str, _Run] = {}
        self._places = asyncio.Semaphore(most_running)
        self._unsettled = Unsettled(store, statuses)

    def is_running(self, session_id: str) -> bool:
        return session_id in self._runs

    def is_unsettled(self, session_id: str) -> bool:
        """Its last turn's end could not be stored yet."""
        return session_id in self._unsettled

    def directories(self) -> set[str]:
        return {run.directory for run in self._runs.values()}

    def sessions_of(self, directory: str) -> list[str]:
        return [session_id for session_id, run in self._runs.items() if run.directory == directory]

    async def run(self, session_id: str, instance: Instance, *, nested: bool = False) -> None:
        """Answer what is stored; returns when the session is idle again. Cancelling the caller does not stop the turn.
        `nested`: the caller is a turn itself."""
        run = self.start(session_id, instance, nested=nested)
        while run is None:
            await self._runs[session_id].over.wait()
            run = self.start(session_id, instance, nested=nested)
        await run.over.wait()

    def start(self, session_id: str, instance: Instance, *, nested: bool = False) -> _Run | None:
        """Start, or join what runs; None when that is just ending and can take nothing more. A turn runs with one instance to its
        end: that of a prompt that joins it serves the next turn."""
        run = self._runs.get(session_id)
        if run is not None and run.ending:
            return None
        if run is not None:
            run.join(instance)
            return run
        run = self._runs[session_id] = _Run(instance.place.directory, instance, nested=nested)
        run.task = asyncio.create_task(self._run(session_id, run), name=f"turn {session_id}")
        return run

    async def exclusively(
        self, session_id: str, directory: str, work: Callable[[], Coroutine[Any, Any, T]], *, announced: bool = False
    ) -> T:
        """Do something that needs the session idle and keeps it busy meanwhile (shell, revert). Raises Busy, Aborted.

        A caller that goes away does not stop it; an abort does. `announced`: its end is told as the session's being idle.
        """
        if session_id in self._runs:
            raise Busy(session_id)
        run = self._runs[session_id] = _Run(directory, ending=True)
        task = run.task = asyncio.create_task(self._alone(session_id, run, work, announced), name=f"exclusive {session_id}")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Aborted(session_id) from None
            raise

    async def _alone(self, session_id: str, run: _Run, work: Callable[[], Coroutine[Any, Any, T]], announced: bool) -> T:
        try:
            self._store.hold(await self._leases.take(session_id))
            return await work()
        finally:
            await asyncio.shield(self._end(session_id, run, announced=announced))

    async def abort(self, session_id: str) -> None:
        """Returns when the session is idle, its record settled. Nothing happens when it is idle already."""
        run = self._runs.get(session_id)
        if run is None:
            return
        if run.task is not None and not run.aborted:
            # Once: a second cancellation would cut the settling short. What is prompted from now on gets a turn of its own.
            run.aborted = run.ending = True
            run.joined = False
            await asyncio.sleep(0)  # cancelled before its first step, the task would not so much as end the run
            run.task.cancel()
        await run.over.wait()

    async def all_over(self) -> None:
        """Returns when nothing runs."""
        while self._runs:
            await next(iter(self._runs.values())).over.wait()

    async def close(self) -> None:
        await asyncio.gather(*(self.abort(session_id) for session_id in list(self._runs)))
        await self._unsettled.close()

    async def _run(self, session_id: str, run: _Run) -> None:
        try:
            lease = await self._leases.take(session_id)
            self._store.hold(lease)
            await self._unsettled.settle(session_id)
            async with await self._place(session_id, run):
                await self._turns(session_id, run)
        except asyncio.CancelledError:
            log.info("the turn of %s was aborted", session_id)
            await asyncio.shield(self._answer_with(session_id, run, aborted()))
        except Exception as error:  # noqa: BLE001  it is stored and logged by what it is
            run.ending = True
            await self._answer_with(session_id, run, stored_error.of_turn(session_id, error))
        finally:
            run.ending = True
            await asyncio.shield(self._end(session_id, run))

    async def _place(self, session_id: str, run: _Run) -> AbstractAsyncContextManager[None]:
        if run.nested:
            return nullcontext()
        if self._places.locked():
            await self._statuses.set(session_id, run.directory, BusyStatus())
        return self._places

    async def _turns(self, session_id: str, run: _Run) -> None:
        while True:
            assert run.instance is not None
            with run.instance.resources.in_use():
                await self._make_turn(session_id, run.instance, run.take_joined).run()
            if not run.joined:
                return

    async def _answer_with(self, session_id: str, run: _Run, error: MessageError) -> None:
        """For a prompt that no turn got to: the turn itself answers for all that comes after."""
        try:
            await stored_error.answer_with(self._store, session_id, MessagePath(cwd=run.directory, root=run.directory), error)
        except Exception:
            log.exception("the end of the turn of %s could not be stored", session_id)
            self._unsettled.add(session_id, run.directory)

    async def _end(self, session_id: str, run: _Run, *, announced: bool = True) -> None:
        """Idle is announced last, when all else of the turn is stored."""
        try:
            self._store.release(session_id)
            self._leases.drop(session_id)
            if announced:
                await self._statuses.set(session_id, run.directory, Idle())
        except Exception:
            log.exception("the end of the turn of %s could not be stored", session_id)
            self._unsettled.add(session_id, run.directory)
        finally:
            self._runs.pop(session_id, None)
            run.over.set()
