"""Turns as tasks: a prompt starts its session's task or joins it, an abort ends it.

The session's gate says when a task may begin; its lease keeps other servers out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.runs.turn_end_retries import TurnEndRetries
from app.schema.errors import Aborted, MessageError, NotFound, ServiceError, SessionBusy
from app.schema.message import MessagePath
from app.schema.session import Busy as BusyStatus
from app.session.gate import Hold, HoldKind, SessionGate
from app.session.lease import POLL_SECONDS, Leases
from app.session.status import EndOfRun, Statuses, busy_in
from app.session.store import Store
from app.storage.engine import StorageError
from app.storage.repositories import message_rows, session_rows
from app.storage.writer import Lease, StaleLease
from app.telemetry.log_lines import DIRECTORY_OF_LINES, SESSION_OF_LINES
from app.turn import stored_error
from app.turn.errors import aborted
from app.util.tasks import TaskSet, every
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_RUNNING = 100


class NoAnswer(ServiceError):
    """The turn ended here before it could store so much as an error: the database is out of reach, or the server stops."""

    name = "NoAnswerError"


@dataclass(slots=True, eq=False)
class Run:
    """A session's task, from the request for its hold until the session is free again.

    `instance` is what the next turn runs with; None for work that is no turn. `discarded`: its session is deleted.
    """

    directory: str
    hold: Hold
    instance: Instance | None = None
    lease: Lease | None = None
    """That came with its prompt."""
    joined: bool = False
    nested: bool = False
    started: bool = False
    waited_for_lease: bool = False
    """Until another server's run of the session was over."""
    fenced: bool = False
    """Another server may go on with it: nothing more is to be written."""
    ending: bool = False
    aborted: bool = False
    discarded: bool = False
    tried: str | None = None
    """The prompt that another server has accepted, and for which it was started."""
    finished: bool = False
    """Its last turn has ended by itself."""
    answer: bytes | None = None
    """What that turn has left as the newest answer."""
    task: asyncio.Task[Any] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def require_not_fenced(self) -> None:
        """Raises NoAnswer when it stopped before its end."""
        if self.fenced:
            raise NoAnswer("This server stopped in the middle of the turn, which goes on or ends on another or after a restart.")

    async def begin(self) -> None:
        """Wait for the hold. Raises CancelledError when it was aborted by then."""
        await self.hold.granted
        self.started = True
        if self.aborted:
            raise asyncio.CancelledError

    def abort(self) -> None:
        """Once: a second cancellation would interrupt what the first one makes it store. One that has not begun is not cancelled:
        its task would not run at all, or would store its end while the run before it still writes."""
        if not self.aborted:
            self.aborted = self.ending = True
            self.joined = False
            if self.started and self.task is not None:
                self.task.cancel()

    def join(self, instance: Instance) -> None:
        self.joined = True
        if instance.location.directory == self.directory:
            self.instance = instance

    def take_joined(self) -> bool:
        joined, self.joined = self.joined, False
        return joined


RunTurn = Callable[[str, Instance, Callable[[], bool]], Awaitable[None]]
"""(session, instance, joined) → returns at the turn's end. `joined` tells, and forgets, whether a prompt has arrived since it was
last called."""


class Runner:
    """At most `most_running` sessions are answered at once; others are busy and wait for their turn. A subagent's session runs
    in its parent's slot: had it to wait, parents could wait for children for ever."""

    def __init__(
        self,
        store: Store,
        statuses: Statuses,
        leases: Leases,
        gate: SessionGate,
        most_running: int = MOST_RUNNING,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._leases = leases
        self._gate = gate
        self._runs: dict[str, list[Run]] = {}
        """By session, in the order of their holds: the last one may wait for the others to end."""
        self._slots = asyncio.Semaphore(most_running)
        self._watching = TaskSet()
        self._aborting = TaskSet()
        self._turn_end_retries = TurnEndRetries(store, statuses, gate, leases)

    def is_running(self, session_id: str) -> bool:
        return session_id in self._runs

    async def idle(self, session_id: str) -> None:
        """Returns when nothing runs here in the session."""
        while runs := self._runs.get(session_id):
            await runs[-1].ended.wait()

    def has_unstored_end(self, session_id: str) -> bool:
        """Its last turn's end could not be stored yet."""
        return session_id in self._turn_end_retries

    def turns(self) -> int:
        """How many run, or wait to."""
        return sum(run.instance is not None for runs in self._runs.values() for run in runs)

    def directories(self) -> set[str]:
        return {run.directory for runs in self._runs.values() for run in runs}

    def sessions_of(self, directory: str) -> list[str]:
        return [session_id for session_id, runs in self._runs.items() if any(run.directory == directory for run in runs)]

    def start(
        self, session_id: str, instance: Instance, run_turn: RunTurn, *, nested: bool = False, lease: Lease | None = None
    ) -> Run:
        """Answer what is stored: join the turn that runs, or start one when what holds the session ends. Cancelling who waits
        for the run does not stop it. `nested`: the caller is a turn itself. `lease`: the session's, if there is one already.

        A turn runs with one instance to its end: that of a prompt that joins it serves the next turn."""
        newest = self._runs[session_id][-1] if session_id in self._runs else None
        if newest is not None and not newest.ending:
            newest.join(instance)
            return newest
        run = Run(
            instance.location.directory, self._gate.request(session_id, HoldKind.TURN), instance, lease=lease, nested=nested
        )
        self._runs.setdefault(session_id, []).append(run)
        self._statuses.mark_busy(session_id, run.directory)
        run.task = asyncio.create_task(self._run(session_id, run, run_turn), name=f"turn {session_id}")
        return run

    async def run_exclusively(
        self,
        session_id: str,
        directory: str,
        kind: HoldKind,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        announced: bool = False,
    ) -> T:
        """Do something that needs the session idle and holds it meanwhile (shell, revert). Raises SessionBusy, Aborted.

        A caller that goes away does not stop it; an abort does. `announced`: its end is announced as the session's being idle.
        """
        run = Run(directory, self._gate.request(session_id, kind), ending=True)
        self._runs.setdefault(session_id, []).append(run)
        task = run.task = asyncio.create_task(
            self._run_with_lease(session_id, run, work, announced), name=f"{kind.name} {session_id}"
        )
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Aborted(session_id) from None
            raise

    async def _run_with_lease(self, session_id: str, run: Run, work: Callable[[], Coroutine[Any, Any, T]], announced: bool) -> T:
        try:
            await run.begin()
            self._store.hold(await self._leases.acquire(session_id))
            await self._turn_end_retries.store_end(session_id)
            return await self._run_work(session_id, run, work)
        finally:
            await asyncio.shield(self._end(session_id, run, announced=announced))

    async def _run_work(self, session_id: str, run: Run, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What it could not store may have left a message open: that is closed later. Nothing else is, as nobody was prompted."""
        try:
            return await work()
        except StaleLease:
            raise
        except StorageError:
            if await stored_error.has_open_answer(self._store, session_id):
                self._turn_end_retries.add(session_id, run.directory)
            raise

    async def abort(self, session_id: str) -> None:
        """Returns when what ran, or waited to, on whatever server, is over and its record closed. Nothing happens when the
        session is idle already. What is prompted from now on gets a turn of its own."""
        await self._abort_here(session_id)
        await self._leases.request_abort(session_id)

    async def _abort_here(self, session_id: str) -> None:
        runs = list(self._runs.get(session_id, ()))
        for run in runs:
            run.abort()
        for run in runs:
            await run.ended.wait()

    # What concerns other servers.

    def watch(self) -> None:
        """From now on, until `close`: end what other servers want to end, and what they may soon take over."""
        for look, what in (
            (self._look_for_heartbeats, "looking for heartbeats"),
            (self._look_for_aborts, "looking for runs that another server wants to end"),
        ):
            self._watching.start(every(POLL_SECONDS, look, what), what)

    async def _look_for_heartbeats(self) -> None:
        """Sends no query: the database may not answer."""
        if self._leases.is_unconfirmed():
            self._fence_unconfirmed()

    async def _look_for_aborts(self) -> None:
        for session_id in await self._leases.aborted_runs():
            self._aborting.start(self._abort_here(session_id), f"abort {session_id}")

    def _fence_unconfirmed(self) -> None:
        """The database has not heard of this server for so long that another takes its sessions over."""
        for session_id, runs in self._runs.items():
            if any(run.started for run in runs):
                log.error("%s: its run stops here, because no heartbeat could be written; another server goes on", session_id)
                self._fence(session_id)

    def _fence(self, session_id: str) -> None:
        """What runs here ends without a word: the database refuses what it still writes, and files cannot refuse."""
        self._store.hold(self._leases.abandon(session_id))
        for run in self._runs[session_id]:
            run.fenced = True
            run.abort()

    async def hand_over(self) -> None:
        """Turns stop where they are. Whoever looks next goes on with them: another server, or this one when it starts again."""
        turns = [session_id for session_id, runs in self._runs.items() if all(run.instance is not None for run in runs)]
        await self._store.barrier()
        held = [lease for session_id in turns if (lease := self._leases.held(session_id)) is not None]
        runs = [run for session_id in turns for run in self._runs.get(session_id, ())]
        for session_id in turns:
            if session_id in self._runs:
                self._fence(session_id)
        for run in runs:
            await run.ended.wait()
        await self._leases.hand_over([lease for lease in held if self._leases.held(lease.session_id) is None])

    def discard(self, session_id: str) -> None:
        """The session is deleted, and held for that: a turn that waits for the hold's end has nothing to answer."""
        for run in self._runs.get(session_id, ()):
            run.discarded = True
        self._turn_end_retries.forget(session_id)
        self._statuses.forget(session_id)

    async def all_ended(self) -> None:
        """Returns when nothing runs."""
        while self._runs:
            await next(iter(self._runs.values()))[0].ended.wait()

    async def close(self) -> None:
        await self._watching.cancel()
        await asyncio.gather(*(self._abort_here(session_id) for session_id in list(self._runs)))
        await self._turn_end_retries.close()

    async def _run(self, session_id: str, run: Run, run_turn: RunTurn) -> None:
        SESSION_OF_LINES.set(session_id)
        DIRECTORY_OF_LINES.set(run.directory)
        try:
            await run.begin()
            if not run.discarded:
                await self._answer(session_id, run, run_turn)
        except asyncio.CancelledError:
            log.info("the turn of %s was aborted", session_id)
            await asyncio.shield(self._answer_aborted(session_id, run))
        except StaleLease:
            run.ending = True
            log.warning("another server runs %s now: its turn ends here", session_id)
        except Exception as error:  # noqa: BLE001  it is stored and logged by what it is
            run.ending = True
            ended_with = stored_error.of_turn(session_id, error)
            stored_error.log_end(session_id, ended_with)
            await self._answer_with(session_id, run, ended_with)
        finally:
            run.ending = True
            await asyncio.shield(self._end(session_id, run, run_turn))

    async def _answer(self, session_id: str, run: Run, run_turn: RunTurn) -> None:
        await self._acquire_lease(session_id, run)
        await self._turn_end_retries.store_end(session_id)
        if run.waited_for_lease and not await self._has_open_prompt(session_id):
            run.discarded = True  # the other server has answered
            return
        async with await self._slot(session_id, run):
            await self._turns(session_id, run, run_turn)

    async def _has_open_prompt(self, session_id: str) -> bool:
        """Its turn closes it at the end: it may have an answer that was interrupted."""
        found = await self._store.query(session_rows.session_and_waiting_prompts, session_id)
        return found is not None and found.waiting > 0

    async def _acquire_lease(self, session_id: str, run: Run) -> None:
        if run.lease is not None and self._leases.held(session_id) is run.lease:
            self._store.hold(run.lease)
            return
        status = busy_in(run.directory)
        try:
            lease = await self._leases.acquire(session_id, status)
        except SessionBusy:
            run.waited_for_lease = True
            lease = await self._leases.acquire(session_id, status, wait=True)
        self._store.hold(lease)

    async def _slot(self, session_id: str, run: Run) -> AbstractAsyncContextManager[None]:
        if run.nested:
            return nullcontext()
        if self._slots.locked():
            await self._statuses.set(session_id, run.directory, BusyStatus())
        return self._slots

    async def _turns(self, session_id: str, run: Run, run_turn: RunTurn) -> None:
        while True:
            assert run.instance is not None
            with run.instance.resources.in_use():
                await run_turn(session_id, run.instance, run.take_joined)
            if not run.joined:
                break
        run.finished = True

    async def _answer_aborted(self, session_id: str, run: Run) -> None:
        """Under the lease: without it the answer may be one that another server writes."""
        if run.fenced or run.discarded:
            return
        try:
            if self._store.lease(session_id) is None:
                await self._acquire_lease(session_id, run)
            unanswered: str | None = await self._store.query(message_rows.unanswered_prompt, session_id)
        except NotFound:
            return
        except StorageError as error:
            log.error("the end of the turn of %s could not be stored: %s", session_id, error)
            self._turn_end_retries.add(session_id, run.directory)
            return
        if unanswered or not run.waited_for_lease:
            await self._answer_with(session_id, run, aborted())

    async def _answer_with(self, session_id: str, run: Run, error: MessageError) -> None:
        """For a prompt that no turn got to: the turn itself answers for all that comes after."""
        try:
            await stored_error.answer_with(self._store, session_id, MessagePath(cwd=run.directory, root=run.directory), error)
        except NotFound:
            log.info("%s is deleted: its turn has nothing to answer", session_id)
        except StaleLease:
            log.warning("another server runs %s now, and answers its prompts", session_id)
        except Exception:
            log.exception("the end of the turn of %s could not be stored", session_id)
            self._turn_end_retries.add(session_id, run.directory)

    async def _end(self, session_id: str, run: Run, run_turn: RunTurn | None = None, *, announced: bool = True) -> None:
        """Idle is announced last, when all else of the turn is stored, be it later; not while another run waits, whose prompt is
        open. It is stored under the lease: the prompts of a session that another server runs are not closed."""
        runs = self._runs[session_id]
        is_last = runs[-1] is run and not (run.discarded or run.fenced)
        ends = announced and run.started and is_last and not self.has_unstored_end(session_id)
        try:
            idle = self._set_idle(session_id, run) if ends else None
            if run.started:
                self._store.release(session_id)
                self._leases.release(session_id, idle)
            if idle is not None:
                self._go_on(session_id, run, await idle, run_turn)
            elif run.finished:
                run.answer = await self._store.answer_json(session_id)
        except StaleLease:
            self._statuses.forget(session_id)
        except Exception:
            log.exception("the end of the turn of %s could not be stored", session_id)
            self._turn_end_retries.add(session_id, run.directory)
        finally:
            if run.discarded or run.fenced:
                self._statuses.forget(session_id)
            runs.remove(run)
            if not runs:
                del self._runs[session_id]
            run.ended.set()
            self._gate.release(run.hold)

    def _set_idle(self, session_id: str, run: Run) -> asyncio.Future[EndOfRun]:
        return self._statuses.set_idle(session_id, run.directory, releases_lease=True, joins=run.finished, tried=run.tried)

    def _go_on(self, session_id: str, run: Run, end: EndOfRun, run_turn: RunTurn | None) -> None:
        """With a turn for the prompt that another server has accepted meanwhile, if there is one. That one waits for the lease:
        where this run was aborted while it ended, as when this server stops, the prompt is left to the other."""
        run.answer = self._store.only_json(session_id, end.answer) if end.answer else None
        if end.waiting is None:
            return
        if run.aborted or run_turn is None or run.instance is None:
            self._statuses.forget(session_id)
        else:
            self.start(session_id, run.instance, run_turn).tried = end.waiting
