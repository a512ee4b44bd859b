"""What a crash left open is put right at the next start, and by the other servers of the same database.

- An answer that was being written gets an error, its tools end as interrupted: no tool is run twice.
- An answer in which a call waited for a person goes on waiting: that call had not begun.
- A prompt that was stored and not begun is answered now.
- A revert or unrevert that was putting files back is undone: nobody was told of it.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.pending.requests import PendingRequests
from app.runs.runner import Run
from app.schema.errors import MessageError, ServiceError
from app.schema.message import AssistantMessage, MessagePath, MessageWithParts
from app.schema.part import ToolPart
from app.schema.permission import PermissionRequest
from app.schema.question import QuestionRequest
from app.session.lease import Leases
from app.session.store import Store
from app.storage import queries
from app.turn import stored_error
from app.turn.errors import TurnFailure, to_message_error
from app.turn.interrupted import mark_interrupted
from app.util.failure_log import FailureLog
from app.workspace.instance import Instance
from app.workspace.instances import Instances

log = logging.getLogger(__name__)

REASON = "The server stopped while this answer was being written. Send a prompt to go on."


LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 60.0


@dataclass
class Recovered:
    """Sessions whose turn goes on, by the directory it ran in; `settled` counts the answers that were closed."""

    resume: dict[str, str] = field(default_factory=dict)
    settled: int = 0


class Recovery:
    """At the start of this server, and while it runs for servers of the same database that die."""

    def __init__(
        self,
        store: Store,
        leases: Leases,
        pending: Sequence[PendingRequests[Any, Any]],
        instances: Instances,
        turns: "TurnStarter",
        reverts: "UnfinishedReverts",
    ) -> None:
        self._store = store
        self._leases = leases
        self._pending = pending
        self._instances = instances
        self._turns = turns
        self._reverts = reverts
        self._taken_over: set[str] = set()
        """What is to be recovered still."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Leaves alone what another living server works on."""
        # In this order: the turns that begin at the end of either are not among the sessions of the other.
        await self._recover(None)
        await self._recover_dead()
        await self._reverts.undo()

    def watch(self) -> None:
        """From now on, until `close`."""
        self._start(self._watch(), "recovery")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        failures, pause = FailureLog(log, "recovering what dead servers left"), LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                if await self._recover_dead():
                    await self._reverts.undo()
                failures.worked()
                pause = LOOK_SECONDS
            except Exception as error:  # noqa: BLE001  whatever it is, the next look may succeed
                failures.failed(error)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    async def _recover_dead(self) -> bool:
        """Whether a server had died."""
        dead = self._leases.dead(await self._store.query(queries.leases))
        if dead:
            self._taken_over |= await self._leases.take_over(dead)
        sessions = frozenset(self._taken_over)
        if sessions:
            await self._recover(sessions)
        return bool(sessions)

    async def _recover(self, sessions: frozenset[str] | None) -> None:
        """Those whose leases were taken over, or all that no server works on."""
        waiting = [request for pending in self._pending for request in await pending.adopt_orphans(sessions)]
        recovered = await self._settle(sessions, waiting)
        opened = await asyncio.gather(*(self._open(session_id, where) for session_id, where in recovered.resume.items()))
        resumed = {session_id: instance for session_id, instance in opened if instance is not None}
        self._drop_left({request.session_id for request in waiting} - resumed.keys())
        for session_id, instance in resumed.items():
            run = self._turns.start(session_id, instance)
            self._start(self._drop_left_after(run, session_id), f"resumed {session_id}")
        if sessions:  # behind the starts, so that what goes on is busy all the time
            await self._leases.recovered(sessions)
            self._taken_over -= sessions
        if recovered.settled or resumed:
            log.warning("closed %d interrupted answers, resumed %d sessions", recovered.settled, len(resumed))

    async def _drop_left_after(self, run: Run, session_id: str) -> None:
        await run.over.wait()
        self._drop_left({session_id})

    def _drop_left(self, sessions: Collection[str]) -> None:
        for pending in self._pending:
            pending.withdraw_orphans(sessions)

    async def _settle(
        self, sessions: frozenset[str] | None, requests: Sequence[PermissionRequest | QuestionRequest]
    ) -> Recovered:
        waiting = {(request.session_id, request.tool.call_id) for request in requests if request.tool is not None}
        recovered = Recovered()
        for session_id, message_id, role in await self._store.query(queries.orphaned_messages, sessions):
            try:
                await self._recover_one(session_id, message_id, role, waiting, recovered)
            except ServiceError as damage:
                log.error("%s of session %s could not be recovered: %s", message_id, session_id, damage)
        return recovered

    async def _open(self, session_id: str, directory: str) -> tuple[str, Instance | None]:
        """What the session's turn goes on with; None where its directory cannot be used, which is then its answer."""
        try:
            return session_id, await self._instances.get(directory)
        except Exception as error:  # noqa: BLE001  whatever is wrong with a directory, the server starts
            await self._give_up(session_id, directory, stored_error.of_turn(session_id, error))
            return session_id, None

    async def _give_up(self, session_id: str, directory: str, error: MessageError) -> None:
        try:
            await stored_error.answer_with(self._store, session_id, MessagePath(cwd=directory, root=directory), error)
            await self._close_prompts(session_id, directory)
        except ServiceError as damage:
            log.error("session %s could not be recovered: %s", session_id, damage)

    async def _recover_one(
        self, session_id: str, message_id: str, role: str, waiting: set[tuple[str, str]], recovered: Recovered
    ) -> None:
        if role == "assistant":
            await self._recover_answer(await self._store.message(session_id, message_id), waiting, recovered)
        else:
            await self._recover_prompt(session_id, message_id, recovered)

    async def _recover_answer(self, message: MessageWithParts, waiting: set[tuple[str, str]], recovered: Recovered) -> None:
        info = message.info
        assert isinstance(info, AssistantMessage)
        calls = {part.id for part in message.parts if isinstance(part, ToolPart) and (info.session_id, part.call_id) in waiting}
        await mark_interrupted(self._store, message, to_message_error(TurnFailure(REASON)), keep=calls)
        if calls:
            recovered.resume[info.session_id] = info.path.cwd
        else:
            recovered.settled += 1

    async def _recover_prompt(self, session_id: str, message_id: str, recovered: Recovered) -> None:
        """One without any answer is answered now; the answer of another was interrupted, and its error says so."""
        answers = await self._store.query(queries.answers_to, session_id, message_id)
        if not answers:
            recovered.resume.setdefault(session_id, (await self._store.session(session_id)).directory)
        elif session_id not in recovered.resume:
            await self._close_prompts(session_id, (await self._store.session(session_id)).directory)

    async def _close_prompts(self, session_id: str, directory: str) -> None:
        change = self._store.change(session_id, directory)
        change.close_prompts()
        await self._store.commit(change)


class TurnStarter(Protocol):
    def start(self, session_id: str, instance: Instance) -> Run: ...


class Unreverter(Protocol):
    async def unrevert(self, instance: Instance, session_id: str) -> object: ...


class UnfinishedReverts:
    def __init__(self, store: Store, instances: Instances, actions: Unreverter) -> None:
        self._store = store
        self._instances = instances
        self._actions = actions

    async def undo(self) -> None:
        for session_id, directory in await self._store.query(queries.unfinished_reverts):
            try:
                await self._actions.unrevert(await self._instances.get(directory), session_id)
                log.warning("undid a revert of %s that a killed server had not finished", session_id)
            except ServiceError as error:
                log.error("the unfinished revert of %s could not be undone, unrevert the session by hand: %s", session_id, error)
            except Exception:
                log.exception("the unfinished revert of %s could not be undone: unrevert the session by hand", session_id)
