"""The turns of sessions: a prompt starts its session's turn or joins it, an abort ends it.

A turn begins when it is the first of its session's works; the session's lease keeps other servers out.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.events.telemetry.log_lines import DIRECTORY_OF_LINES, SESSION_OF_LINES
from app.events.telemetry.observer import TurnEnd, TurnRecord
from app.record.engine import StorageError
from app.record.repositories import message_rows, session_rows
from app.record.writer import Lease, StaleLease
from app.schema.errors import Aborted, MessageError, NoAnswer, NotFound, SessionBusy, unknown
from app.schema.session import Busy
from app.sessions.lease import ACQUIRE_RETRY_SECONDS
from app.sessions.live import EndOfRun, LiveSession, LiveSessions, SessionWork, WorkKind
from app.turn import ends
from app.turn.ends import Deadline, aborted
from app.turn.turn import Turn
from app.turn.turn_context import RunSubagent, TurnContext, TurnServices
from app.util.tasks import FailureLog
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class TurnWork(SessionWork):
    """The turns of a session until it is idle again. `instance`: of the next turn. `lease`: came with the prompt. `is_nested`:
    another turn waits for this one. `tried_prompt`: the prompt, accepted by another server, for which this work was started.
    `answer`: the session's newest when the last turn had ended by itself."""

    instance: Instance
    lease: Lease | None = None
    is_nested: bool = False
    tried_prompt: str | None = None
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a prompt has come since the turn has last read the conversation."""
    has_waited: bool = False
    """Whether the work has waited for another server's run of the session."""
    is_finished: bool = False
    """Whether the last turn has ended by itself, and no prompt has come that it has not seen."""
    deadline: Deadline | None = None
    answer: bytes | None = None

    def join(self, instance: Instance) -> None:
        self.joined.set()
        if instance.location.directory == self.directory:
            self.instance = instance

    def require_not_fenced(self) -> None:
        """Raises NoAnswer if the turn was stopped before its end."""
        if self.is_fenced:
            raise NoAnswer("This server stopped in the middle of the turn, which goes on or ends on another or after a restart.")


class Turns:
    """At most `most_running` sessions are answered at once; others are busy and wait. A subagent's session runs in its parent's
    slot: otherwise parents could wait for children for ever."""

    def __init__(
        self,
        services: TurnServices,
        run_subagent: RunSubagent,
        sessions: LiveSessions,
        most_running: int,
    ) -> None:
        self._services = services
        self._store = services.store
        self._run_subagent = run_subagent
        self._sessions = sessions
        self._leases = sessions.leases
        self._slots = asyncio.Semaphore(most_running)
        self._unstored_ends = UnstoredEnds(sessions)

    def context(self, instance: Instance, live: LiveSession) -> TurnContext:
        """For a work of one session that is no turn."""
        return TurnContext(self._services, self._run_subagent, instance, live)

    def start(self, session_id: str, instance: Instance, *, nested: bool = False, lease: Lease | None = None) -> TurnWork:
        """Answers stored prompts: joins the running turn, or starts one when the works of the session have ended. A caller that
        is cancelled does not stop the turn. `nested`: the caller is a turn itself. `lease`: the session's, if acquired already.

        A turn keeps one instance to its end; the instance of a prompt that joins it serves the next turn."""
        live = self._sessions.get(session_id)
        newest = live.works[-1] if live.works else None
        if isinstance(newest, TurnWork) and not newest.is_ending:
            newest.join(instance)
            return newest
        directory = instance.location.directory
        work = TurnWork(kind=WorkKind.TURN, directory=directory, instance=instance, lease=lease, is_nested=nested)
        live.begin(work)
        live.show(directory, Busy())
        work.task = asyncio.create_task(self._run(live, work), name=f"turn {session_id}")
        return work

    async def run_exclusively(
        self,
        session_id: str,
        directory: str,
        kind: WorkKind,
        action: Callable[[], Coroutine[Any, Any, T]],
        *,
        announced: bool = False,
    ) -> T:
        """Runs an action that needs the session idle and keeps others out meanwhile (shell, revert). Raises SessionBusy, Aborted.

        A caller that is cancelled does not stop it; an abort does. `announced`: `session.idle` is announced at its end.
        """
        live, work = self._sessions.get(session_id), SessionWork(kind=kind, directory=directory)
        task = work.task = asyncio.create_task(self._run_alone(live, work, action, announced), name=f"{kind.name} {session_id}")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Aborted(session_id) from None
            raise

    async def _run_alone(
        self, live: LiveSession, work: SessionWork, action: Callable[[], Coroutine[Any, Any, T]], announced: bool
    ) -> T:
        async with live.exclusive(work):
            busy_in = work.directory if work.kind is WorkKind.SHELL else None  # the others keep prompts out
            self._store.hold(await self._leases.acquire(live.id, busy_in))
            try:
                await self._unstored_ends.store(live)
                result = await self._run_action(live, work.directory, action)
            finally:
                work.is_ending = True
                await self._close(live, work, announced=announced)
            await self._store.barrier()  # until the lease is free: the client may send its next request to another server
            return result

    async def _run_action(self, live: LiveSession, directory: str, action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """An action whose last values could not be stored may leave a message open, which is closed later."""
        try:
            return await action()
        except StaleLease:
            raise
        except StorageError:
            if any(map(ends.is_open, (await self._store.conversation(live.id)).messages)):
                self._unstored_ends.store_later(live, directory)
            raise

    async def _run(self, live: LiveSession, work: TurnWork) -> None:
        SESSION_OF_LINES.set(live.id)
        DIRECTORY_OF_LINES.set(work.directory)
        try:
            await live.first(work)
            work.has_begun = True
            if work.is_aborted:
                raise asyncio.CancelledError
            if not work.is_discarded:
                await self._answer(live, work)
        except asyncio.CancelledError:
            log.info("the turn of %s was aborted", live.id)
            await asyncio.shield(self._answer_aborted(live, work))
        except StaleLease:
            work.is_ending = work.is_fenced = True
            log.warning("another server runs %s now: its turn ends here", live.id)
        except Exception as error:  # noqa: BLE001  it is stored and logged by what it is
            work.is_ending = True
            ended_with = ends.error_of_turn(live.id, error)
            ends.log_end(live.id, ended_with)
            await self._answer_with(live, work, ended_with)
        finally:
            work.is_ending = True
            await self._close(live, work)
            live.end(work)

    async def _answer(self, live: LiveSession, work: TurnWork) -> None:
        await self._acquire_lease(live, work)
        await self._unstored_ends.store(live)
        if work.has_waited:
            found = await self._store.query(session_rows.session_and_waiting_prompts, live.id)
            if found is None or not found.waiting:  # the other server has answered, and closed the prompts at the end of its turn
                work.is_discarded = True
                return
        if not work.is_nested and self._slots.locked():
            await live.set_status(work.directory, Busy())
        async with nullcontext() if work.is_nested else self._slots:
            while not work.is_finished:
                with work.instance.resources.in_use():
                    await self._run_turn(live, work)
                work.is_finished = not work.joined.is_set()

    async def _acquire_lease(self, live: LiveSession, work: TurnWork) -> None:
        if work.lease is not None and self._leases.held(live.id) is work.lease:
            self._store.hold(work.lease)
            return
        try:
            lease = await self._leases.acquire(live.id, work.directory)
        except SessionBusy:
            work.has_waited = True
            lease = await self._leases.acquire(live.id, work.directory, wait=True)
        self._store.hold(lease)

    async def _run_turn(self, live: LiveSession, work: TurnWork) -> None:
        record = TurnRecord(live.id)
        ctx = TurnContext(self._services, self._run_subagent, work.instance, live, work.joined, record, answered=work.ended)
        work.deadline = ctx.deadline
        with self._services.observer.turn(record):
            try:
                await Turn(ctx).run()
                if record.failure is not None and record.ended() is TurnEnd.FAILED:
                    ends.log_end(live.id, record.failure)
            except StaleLease:
                record.end = TurnEnd.HANDED_OVER
                raise
            except asyncio.CancelledError:
                lease = self._store.lease(live.id)
                record.end = TurnEnd.HANDED_OVER if lease and lease.is_abandoned else TurnEnd.ABORTED
                raise
            except Exception:
                record.end = TurnEnd.FAILED
                raise

    # Ends.

    async def _answer_aborted(self, live: LiveSession, work: TurnWork) -> None:
        """Needs the lease: without it the answer may be one that another server writes."""
        if work.is_fenced or work.is_discarded:
            return
        try:
            if self._store.lease(live.id) is None and not await self._acquire_unless_answered(live, work):
                work.is_discarded = True
                return
            unanswered: str | None = await self._store.query(message_rows.unanswered_prompt, live.id)
        except NotFound:
            work.is_discarded = True
            return
        except StorageError as error:
            log.error("the end of the turn of %s could not be stored: %s", live.id, error)
            self._unstored_ends.store_later(live, work.directory)
            return
        if unanswered or not work.has_waited:
            await self._answer_with(live, work, aborted())

    async def _acquire_unless_answered(self, live: LiveSession, work: TurnWork) -> bool:
        """False once another server has ended the run that answers the prompts; its next may follow without a pause."""
        waiting = await self._store.query(message_rows.open_prompts, live.id)
        while True:
            with suppress(SessionBusy):
                self._store.hold(await self._leases.acquire(live.id, work.directory))
                return True
            work.has_waited = True
            if waiting.isdisjoint(await self._store.query(message_rows.open_prompts, live.id)):
                return False
            await asyncio.sleep(ACQUIRE_RETRY_SECONDS)

    async def _answer_with(self, live: LiveSession, work: TurnWork, error: MessageError) -> None:
        """For a prompt that no turn has reached; a turn stores its own errors."""
        try:
            await ends.answer_with(self._store, live.id, work.directory, error)
        except NotFound:
            work.is_discarded = True
            log.info("%s is deleted: its turn has nothing to answer", live.id)
        except StaleLease:
            log.warning("another server runs %s now, and answers its prompts", live.id)
        except Exception:
            log.exception("the end of the turn of %s could not be stored", live.id)
            self._unstored_ends.store_later(live, work.directory)

    async def _close(self, live: LiveSession, work: SessionWork, *, announced: bool = True) -> None:
        """Releases the lease. If nothing more runs in the session, announces idle: that is the last change of the work."""
        try:
            idle = _set_idle(live, work) if announced else None
            if work.has_begun:
                self._store.release(live.id)
                self._leases.release(live.id, idle)
            if idle is not None:
                self._follow_up(live, work, await idle)
            elif isinstance(work, TurnWork) and work.is_finished:
                work.answer = await self._store.answer_json(live.id)
        except StaleLease:
            live.forget_status()
        except Exception:
            log.exception("the end of the turn of %s could not be stored", live.id)
            self._unstored_ends.store_later(live, work.directory)
        finally:
            if work.is_discarded or work.is_fenced:  # even if it was set while its end was stored
                live.forget_status()

    def _follow_up(self, live: LiveSession, work: SessionWork, end: EndOfRun) -> None:
        """Keeps a turn's answer, and starts a turn for the prompt that another server has accepted meanwhile, if there is one.
        If this work was aborted during its end, as when this server stops, it leaves the prompt to that server, which waits for
        the lease."""
        if not isinstance(work, TurnWork):
            return
        work.answer = self._store.only_json(live.id, end.answer) if end.answer else None
        if end.waiting is None:
            return
        if work.is_aborted:
            live.forget_status()
        else:
            self.start(live.id, work.instance).tried_prompt = end.waiting


def _set_idle(live: LiveSession, work: SessionWork) -> asyncio.Future[EndOfRun] | None:
    """Not while a turn waits, whose prompt is open. Not if another server runs the session: its prompts stay open. Not before the
    end of a turn that could not be stored yet."""
    a_turn_waits = any(other.kind is WorkKind.TURN for other in live.works if other is not work)
    is_elsewhere = work.is_discarded or work.is_fenced
    if not work.has_begun or a_turn_waits or is_elsewhere or live.unstored_end is not None:
        return None
    if isinstance(work, TurnWork):
        return live.set_idle(work.directory, releases_lease=True, joins=work.is_finished, tried_prompt=work.tried_prompt)
    return live.set_idle(work.directory, releases_lease=True)


FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 60.0
PROBE_SECONDS = 1.0
"""The time between two looks whether a database that has refused accepts writes again."""


class UnstoredEnds:
    """The ends of turns that could not be stored. Each is tried again when the database accepts writes, until it is stored or its
    session is deleted. The delay between two tries doubles up to MAX_DELAY_SECONDS."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._store = sessions.store
        self._leases = sessions.leases
        self._probe = asyncio.Lock()

    def store_later(self, live: LiveSession, directory: str) -> None:
        live.unstored_end = directory
        if live.closing is None:
            live.closing = asyncio.create_task(self._retry(live), name=f"close {live.id}")

    async def store(self, live: LiveSession) -> None:
        """Stores the session's end, if one is missing; the next turn does so too. The caller works on the session. Raises what
        prevents it."""
        directory = live.unstored_end
        if directory is None:
            return
        await ends.answer_with(self._store, live.id, directory, unknown(ends.NOT_STORED))
        await live.set_idle(directory)
        live.unstored_end = None
        log.warning("the end of the turn of %s is stored now, which failed before", live.id)

    async def _retry(self, live: LiveSession) -> None:
        failures, delay = FailureLog(log, f"storing the end of the turn of {live.id}"), FIRST_DELAY_SECONDS
        try:
            while live.unstored_end is not None:
                await asyncio.sleep(delay)
                await self._until_writable()
                await self._try(live, failures)
                delay = min(2 * delay, MAX_DELAY_SECONDS)
        finally:
            live.closing = None
            live.remember_while_busy()

    async def _until_writable(self) -> None:
        """One session at a time: the others wait for it without sending queries."""
        async with self._probe:
            is_writable = await self._store.accepts_writes()
            while not is_writable:
                await asyncio.sleep(PROBE_SECONDS)
                is_writable = await self._store.accepts_writes()

    async def _try(self, live: LiveSession, failures: FailureLog) -> None:
        try:
            async with live.editing():
                self._store.hold(await self._leases.acquire(live.id))
                try:
                    await self.store(live)
                finally:
                    self._store.release(live.id)
                    self._leases.release(live.id)
        except SessionBusy:
            return  # what works on the session closes the record first
        except NotFound:
            live.unstored_end = None
            live.forget_status()  # another server has deleted it
        except Exception as error:  # noqa: BLE001  whatever keeps it from being stored may pass
            failures.failed(error)
