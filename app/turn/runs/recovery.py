"""Recovery: finishes or resumes what a dead or stopped server left open, at the next start or on another server of its database.

- An answer that was being written is resumed: its tool calls end as interrupted, so that no tool is run twice, and the model is
  requested again. It gets an error instead after too many tries, after too long, or if resuming is turned off.
- An answer in which a call waited for the user waits on: that call had not begun.
- A prompt that was stored and not started is answered now.
- A revert or unrevert that was restoring files is undone: its client has had no answer.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from app.permissions.pending_requests import PendingRequests
from app.record.engine import StorageError
from app.record.repositories import message_rows, session_rows, work_rows
from app.schema.errors import MessageError, ServiceError, SessionBusy, unknown
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import ToolPart
from app.sessions.lease import Interruption, Leases
from app.sessions.live import LiveSessions, end_of_run
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.turn import ends
from app.turn.ends import mark_for_resumption, mark_interrupted
from app.turn.runs.turns import Turns, TurnWork
from app.util import processes
from app.util.tasks import TaskSet, every
from app.workspace.instance import Instance
from app.workspace.instances import Instances

log = logging.getLogger(__name__)

REASON = "The server stopped while this answer was being written. Send a prompt to go on."
MAX_TAKEOVERS = 2
"""How often one turn is resumed: a turn that kills its servers must not kill them all."""
MAX_INTERRUPTION_SECONDS = 600.0
"""A turn that was interrupted for longer is not resumed."""
ABANDONED_AFTER_SECONDS = 3.0
"""How long a prompt may be stored without a run: longer than any server takes to begin one."""
LEFT_OPEN_AFTER_SECONDS = 15.0
"""How long an answer may be open without a run: longer than a server takes to store an end that it could not store at once."""

OPENING_SECONDS = 5.0
"""How long a start waits for the directories of turns that go on. A slower directory holds up only its own turns, because whoever
works in a project may have put anything there."""
POLL_SECONDS = 1.0
MAX_POLL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Orphans:
    """What a dead server left open in one session: `answers` that were being written, `prompts` that wait for one."""

    session_id: str
    interruption: Interruption | None
    """None if it is not known how the session's run ended."""
    answers: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def may_resume(self) -> bool:
        interruption = self.interruption
        return (
            interruption is not None
            and interruption.takeovers <= MAX_TAKEOVERS
            and interruption.seconds <= MAX_INTERRUPTION_SECONDS
        )


@dataclass(eq=False)
class Recovery:
    """Runs at the start of this server, and later for servers of the same database that die. `continues`: interrupted turns are
    resumed; otherwise they end with an error. `prompted_only`: of dead servers' sessions, only those are recovered that this
    server has a prompt of."""

    store: Store
    leases: Leases
    pending: Sequence[PendingRequests[Any, Any]]
    instances: Instances
    turns: Turns
    live: LiveSessions
    unrevert: Callable[[Instance, str], Awaitable[object]]
    _: KW_ONLY
    continues: bool = True
    prompted_only: bool = False

    def __post_init__(self) -> None:
        self._taken_over: dict[str, Interruption] = {}
        """Sessions that are not recovered yet."""
        self._abandoned: dict[str, float] = {}
        """When each session was first seen with a prompt that no server runs."""
        self._late: set[str] = set()
        """Sessions whose directories are still being opened."""
        self._undoing: set[str] = set()
        """Sessions whose unfinished revert is being undone."""
        self._tasks = TaskSet()

    async def run(self) -> None:
        """Leaves alone the sessions that other living servers work on."""
        # In this order, because the turns that begin at the end of either are not among the sessions of the other.
        await self._recover(None)
        await self._recover_dead()
        await self._undo_reverts()

    def watch(self) -> None:
        """From now on, until `close`."""
        what = "recovering what dead servers left"
        self._tasks.start(every(POLL_SECONDS, self._poll, what, longest=MAX_POLL_SECONDS), what)

    async def close(self) -> None:
        await self._tasks.cancel()

    # Finding the sessions to recover.

    async def _poll(self) -> None:
        await self._recover_dead()
        await self._undo_reverts()
        if not self.prompted_only:
            await self._start_abandoned()

    async def _recover_dead(self) -> None:
        dead = self.leases.find_dead(await self.store.query(work_rows.leases))
        if self.prompted_only:
            dead = [lease for lease in dead if self.live.get(lease.session_id).is_unfinished]
        if dead:
            await asyncio.to_thread(processes.end_abandoned)  # a killed server's commands on this machine, before its turns go on
            self._taken_over |= await self.leases.take_over(dead)
        taken_over = dict(self._taken_over)
        if taken_over:
            await self._recover(taken_over)

    async def _start_abandoned(self) -> None:
        """Starts prompts whose server died between storing and running them. Offers open answers that no server goes on with."""
        now = time.monotonic()
        rows = await self.store.query(work_rows.abandoned_sessions)
        seen_before, self._abandoned = self._abandoned, {}
        prompts: dict[str, str] = {}
        answers: list[str] = []
        for row in rows:
            if self.live.get(row.session_id).is_unfinished:
                continue
            since = self._abandoned[row.session_id] = seen_before.get(row.session_id, now)
            if row.answered and now - since >= LEFT_OPEN_AFTER_SECONDS:
                answers.append(row.session_id)
            elif not row.answered and now - since >= ABANDONED_AFTER_SECONDS:
                prompts[row.session_id] = row.directory
        if prompts:
            await self._resume(prompts)
        if answers:
            await self.leases.offer(answers)

    # Recovering.

    async def _recover(self, sessions: Mapping[str, Interruption] | None) -> None:
        """The sessions whose leases were taken over, or all that no server works on."""
        asked = None if sessions is None else frozenset(sessions)
        waiting = [request for pending in self.pending for request in await pending.adopt_orphans(asked)]
        calls = {(request.session_id, request.tool.call_id) for request in waiting if request.tool is not None}
        orphans = await self._orphans(sessions)
        going_on = {left.session_id: directory for left in orphans if (directory := await self._close_or_keep(left, calls))}
        resumed = await self._resume(going_on)
        self._drop_requests({request.session_id for request in waiting} - resumed)
        if sessions:  # after the starts, so that sessions that go on stay busy
            await self.leases.mark_recovered(sessions, resumed)
            for session_id in sessions:
                self._taken_over.pop(session_id, None)
        if orphans:
            log.warning("went on with %d interrupted turns, ended %d", len(resumed), len(orphans) - len(resumed))

    async def _orphans(self, sessions: Mapping[str, Interruption] | None) -> list[Orphans]:
        asked = None if sessions is None else frozenset(sessions)
        found: dict[str, Orphans] = {}
        for session_id, message_id, role in await self.store.query(work_rows.orphaned_messages, asked):
            left = found.setdefault(session_id, Orphans(session_id, (sessions or {}).get(session_id)))
            (left.answers if role == "assistant" else left.prompts).append(message_id)
        return list(found.values())

    async def _close_or_keep(self, left: Orphans, calls: Collection[tuple[str, str]]) -> str | None:
        """Closes what does not go on. Returns the directory in which the session's turn goes on, if it does."""
        try:
            return await self._recover_session(left, calls)
        except ServiceError as damage:
            log.error("session %s could not be recovered: %s", left.session_id, damage)
            return None

    async def _recover_session(self, left: Orphans, calls: Collection[tuple[str, str]]) -> str | None:
        session = await self.store.session(left.session_id)
        resumes = self.continues and left.may_resume() and session.parent_id is None
        directory = None
        for message_id in left.answers:
            message = await self.store.message(left.session_id, message_id)
            is_of_turn = resumes and isinstance(message.info, AssistantMessage) and message.info.parent_id in left.prompts
            directory = await self._recover_answer(message, calls, resumes=is_of_turn) or directory
        if directory is None and left.prompts:
            answers = await self.store.query(message_rows.answers_to, left.session_id, left.prompts[-1])
            if resumes or not answers:  # an interrupted answer is one: its error says so
                return session.directory
        if directory is None:
            await self._end_run(left.session_id, session.directory)
        return directory

    async def _recover_answer(
        self, message: MessageWithParts, calls: Collection[tuple[str, str]], *, resumes: bool
    ) -> str | None:
        info = message.info
        assert isinstance(info, AssistantMessage)
        tools = [part for part in message.parts if isinstance(part, ToolPart)]
        waiting = {part.id for part in tools if (info.session_id, part.call_id) in calls}
        if not (waiting or resumes):
            await mark_interrupted(self.store, message, unknown(REASON))
            return None
        await mark_for_resumption(self.store, message, waiting)
        return info.path.cwd

    async def _end_run(self, session_id: str, directory: str) -> None:
        """Clients were told that the session is busy, and are told now that it is idle."""
        await self.store.write(session_id, directory, lambda tx: end_of_run(tx, joins=False, tried_prompt=None))

    # Going on.

    async def _resume(self, directories: Mapping[str, str]) -> set[str]:
        """Starts the turns of sessions, each in its directory; returns those that are started, or will be when it is open."""
        new = {session_id: directory for session_id, directory in directories.items() if session_id not in self._late}
        opening = {each: self._tasks.start(self._open(each, where), f"open for {each}") for each, where in new.items()}
        if opening:
            await asyncio.wait(opening.values(), timeout=OPENING_SECONDS)
        opened = {session_id: task.result() for session_id, task in opening.items() if task.done()}
        for session_id, instance in opened.items():
            if instance is not None:
                self._go_on(session_id, instance)
        for session_id in opening.keys() - opened.keys():
            self._late.add(session_id)
            self._tasks.start(self._go_on_late(session_id, opening[session_id]), f"resume {session_id}")
        return {session_id for session_id in directories if opened.get(session_id, self) is not None}

    def _go_on(self, session_id: str, instance: Instance) -> None:
        run = self.turns.start(session_id, instance)
        self._tasks.start(self._drop_requests_after(run, session_id), f"resumed {session_id}")

    async def _go_on_late(self, session_id: str, opening: "asyncio.Task[Instance | None]") -> None:
        try:
            instance = await opening
        finally:
            self._late.discard(session_id)
        if instance is not None:
            self._go_on(session_id, instance)
            return
        self._drop_requests({session_id})
        if not self.live.get(session_id).is_unfinished:  # otherwise what works on it by now releases its lease
            self.leases.release(session_id)

    async def _drop_requests_after(self, run: TurnWork, session_id: str) -> None:
        await run.ended.wait()
        self._drop_requests({session_id})

    def _drop_requests(self, sessions: Collection[str]) -> None:
        """Withdraws the requests that no call has asked again."""
        for pending in self.pending:
            pending.withdraw_orphans(sessions)

    async def _undo_reverts(self) -> None:
        """Those of this server's open directories alone with `prompted_only`."""
        undoing: list[asyncio.Task[None]] = []
        for session_id, directory in await self.store.query(session_rows.unfinished_reverts):
            is_wanted = not self.prompted_only or directory in self.instances.workspaces.open_directories()
            if is_wanted and session_id not in self._undoing:
                self._undoing.add(session_id)
                undoing.append(self._tasks.start(self._undo_revert(session_id, directory), f"undo the revert of {session_id}"))
        if undoing:
            await asyncio.wait(undoing, timeout=OPENING_SECONDS)

    async def _undo_revert(self, session_id: str, directory: str) -> None:
        """One that cannot be undone stays in force, or prompts would be kept out for ever."""
        try:
            instance = await self.instances.get(directory, (await self.store.session(session_id)).owner or "")
            await self.unrevert(instance, session_id)
            log.warning("undid a revert of %s that a killed server had not finished", session_id)
        except (SessionBusy, StorageError) as error:
            log.info("the unfinished revert of %s is left to another server, or to later: %s", session_id, error)
        except Exception:
            log.exception("the unfinished revert of %s could not be undone: unrevert the session by hand", session_id)
            await self.store.write(session_id, directory, _keep_in_force)
        finally:
            self._undoing.discard(session_id)

    async def _open(self, session_id: str, directory: str) -> Instance | None:
        """The instance for the session's turn. None if its directory cannot be used, which is then the answer."""
        try:
            return await self.instances.get_for_stored_work(directory, (await self.store.session(session_id)).owner or "")
        except Exception as error:  # noqa: BLE001  whatever is wrong with a directory, the server starts
            ended_with = ends.error_of_turn(session_id, error)
            ends.log_end(session_id, ended_with)
            await self._give_up(session_id, directory, ended_with)
            return None

    async def _give_up(self, session_id: str, directory: str, error: MessageError) -> None:
        try:
            await ends.answer_with(self.store, session_id, directory, error)
            await self._end_run(session_id, directory)
        except ServiceError as damage:
            log.error("session %s could not be recovered: %s", session_id, damage)


def _keep_in_force(tx: SessionTx) -> None:
    revert = tx.session().revert
    if revert is not None:
        tx.edit(lambda session: session.model_copy(update={"revert": revert.model_copy(update={"unfinished": None})}))
