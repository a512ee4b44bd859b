"""Prompting a session: store the prompt and start its turn in one step, return the answer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.intake.subagent import SubagentSessions
from app.intake.user_message import Intake, PreparedPrompt, StoredPrompt
from app.runs.runner import NoAnswer, Run, Runner
from app.schema.errors import NotFound, SessionBusy
from app.schema.message import Message, MessageWithParts, PromptInput, UserMessage
from app.session.gate import HoldKind, SessionGate
from app.session.lease import Leases, PromptLease
from app.session.prompted_session import PromptedSession
from app.session.status import busy_in
from app.storage.writer import StaleLease
from app.telemetry.records import TurnEnd, TurnRecord
from app.turn import stored_error
from app.turn.deadline import Deadline
from app.turn.turn import Turn
from app.turn.turn_scope import TurnScope, TurnServices
from app.workspace.instance import Instance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AcceptedPrompt:
    """`run` answers it; None where no answer is wanted, or the prompt was sent before and has its answer."""

    message: MessageWithParts
    known: bool
    run: Run | None


class Prompts:
    """It makes the turns, too: a turn that runs a subagent comes back here."""

    def __init__(self, services: TurnServices, intake: Intake, runner: Runner, gate: SessionGate, leases: Leases) -> None:
        self._services = services
        self._store = services.store
        self._subagents = SubagentSessions(services.store, self)
        self._intake = intake
        self._runner = runner
        self._gate = gate
        self._leases = leases
        self._deadlines: dict[str, Deadline] = {}
        """Of the turns that run here, by session."""
        self._background: set[asyncio.Task[bytes]] = set()

    async def accept(
        self,
        instance: Instance,
        prompted: PromptedSession,
        prompt: PromptInput,
        *,
        rules_from_tools: bool = True,
        nested: bool = False,
        content: str | None = None,
    ) -> AcceptedPrompt:
        """Store a prompt and start the turn that answers it, or join the one that runs: no other request comes in between. Waits
        for what changes the session's messages. What the prompt asks for wrongly is raised before anything is stored.

        `rules_from_tools`: its `tools` map replaces the session's permission rules. `nested`: a turn waits for the answer.
        `content`: as for `Intake.prepare`. Raises SessionBusy for one that must not join a turn.
        """
        session_id = prompted.session.id
        prepared = await self._intake.prepare(instance, prompted, prompt, content)
        if prompt.when_busy == "interrupt":
            await self._interrupt(session_id, prepared)
        return await self.accept_prepared(instance, session_id, prepared, rules_from_tools=rules_from_tools, nested=nested)

    async def _interrupt(self, session_id: str, prepared: PreparedPrompt) -> None:
        """Not the turn that answers this very prompt, which its client may have sent twice: under the lock, either it is stored
        or its turn has not started, and what is aborted is what runs then."""
        async with self._store.lock(session_id):
            if await self._intake.is_known(session_id, prepared.input.message_id, prepared.content):
                return
            aborting = asyncio.create_task(self._runner.abort(session_id), name=f"interrupt {session_id}")
        await aborting

    async def accept_prepared(
        self,
        instance: Instance,
        session_id: str,
        prepared: PreparedPrompt,
        *,
        rules_from_tools: bool = True,
        nested: bool = False,
        queued_id: str | None = None,
    ) -> AcceptedPrompt:
        """`queued_id`: it has waited in the queue, which it leaves now."""
        prompt = prepared.input
        async with self._gate.hold(session_id, HoldKind.PROMPT):
            if prepared.message is not None and prompt.when_busy in ("reject", "queue"):
                await self._require_idle(session_id)
            async with self._turn_lease(instance, session_id, prompt) as lease:
                stored = await self._intake.store(
                    instance, session_id, prepared, lease, rules_from_tools=rules_from_tools, queued_id=queued_id
                )
                wants_run = not prompt.no_reply and await self._is_unanswered(session_id, stored)
                run = self.start(session_id, instance, nested=nested, lease=lease) if wants_run else None
            self._limit(session_id, stored.message.info)
        return AcceptedPrompt(stored.message, stored.known, run)

    @asynccontextmanager
    async def _turn_lease(self, instance: Instance, session_id: str, prompt: PromptInput) -> AsyncIterator[PromptLease | None]:
        """For the turn that the prompt starts within the block. None where it joins one, or wants none."""
        if prompt.no_reply or self.is_running(session_id):
            yield None
            return
        lease = PromptLease(self._leases, session_id, busy_in(instance.location.directory))
        try:
            yield lease
        finally:
            if not self._runner.is_running(session_id):
                lease.give_back()

    def _limit(self, session_id: str, prompt: Message) -> None:
        """The turn that runs has another prompt to answer."""
        running = self._deadlines.get(session_id)
        if running is not None and isinstance(prompt, UserMessage) and prompt.deadline is not None:
            running.tighten(prompt.deadline)

    async def _require_idle(self, session_id: str) -> None:
        if self.is_running(session_id) or await self._leases.is_held_elsewhere(session_id):
            raise SessionBusy(session_id)

    def start(self, session_id: str, instance: Instance, *, nested: bool = False, lease: PromptLease | None = None) -> Run:
        """Answer what is stored, as `Runner.start` does."""
        acquired = lease.lease if lease else None
        return self._runner.start(session_id, instance, self._run_turn, nested=nested, lease=acquired)

    def is_running(self, session_id: str) -> bool:
        """Or has still to store the end of its turn."""
        return self._runner.is_running(session_id) or self._runner.has_unstored_end(session_id)

    def scope(self, instance: Instance, session_id: str) -> TurnScope:
        return TurnScope(self._services, self._subagents, instance, session_id, TurnRecord(session_id))

    async def _run_turn(self, session_id: str, instance: Instance, joined: Callable[[], bool]) -> None:
        scope = self.scope(instance, session_id)
        self._deadlines[session_id] = scope.deadline
        try:
            with self._services.observer.turn(scope.record):
                await self._observed(session_id, Turn(scope, joined), scope.record)
        finally:
            del self._deadlines[session_id]

    async def _observed(self, session_id: str, turn: Turn, record: TurnRecord) -> None:
        try:
            await turn.run()
            if record.failure is not None and record.ended() is TurnEnd.FAILED:
                stored_error.log_end(session_id, record.failure)
        except StaleLease:
            record.end = TurnEnd.HANDED_OVER
            raise
        except asyncio.CancelledError:
            lease = self._store.lease(session_id)
            record.end = TurnEnd.HANDED_OVER if lease and lease.is_abandoned else TurnEnd.ABORTED
            raise
        except Exception:
            record.end = TurnEnd.FAILED
            raise

    async def _is_unanswered(self, session_id: str, stored: StoredPrompt) -> bool:
        """Whether a run is to be waited for: one that another server has may be writing the answer."""
        if not stored.known or self._runner.is_running(session_id) or await self._leases.is_left_to_others(session_id):
            return True
        return await self._store.answer_json(session_id, stored.message.info.id) is None

    async def answer(self, session_id: str, accepted: AcceptedPrompt) -> bytes:
        """The JSON of the message that answers: of a prompt sent twice, the answer that it got."""
        run, prompt_id = accepted.run, accepted.message.info.id
        if run is not None:
            await run.ended.wait()
            run.require_not_fenced()
        answered = await self._store.answer_json(session_id, prompt_id) if accepted.known else run and run.answer
        answered = answered or await self._store.answer_json(session_id)
        if not answered or self._runner.has_unstored_end(session_id):
            raise NoAnswer(f"The prompt {prompt_id} got no answer that could be stored; see the server's log")
        return answered

    async def answer_nested(self, instance: Instance, session_id: str, prompt: PromptInput) -> bytes:
        """For a turn that waits for the answer: accept and answer. Cancelled, it aborts the session's turn."""
        prompted = await self._store.session_to_prompt(session_id)
        accepting = asyncio.create_task(self.accept(instance, prompted, prompt, rules_from_tools=False, nested=True))
        try:
            return await self.answer(session_id, await asyncio.shield(accepting))
        except asyncio.CancelledError:
            await asyncio.shield(self._abort_accepted(session_id, accepting))
            raise

    async def _abort_accepted(self, session_id: str, accepting: asyncio.Task[AcceptedPrompt]) -> None:
        """A prompt that was being accepted is stored; its answer is then that it was aborted."""
        await asyncio.wait({accepting})
        if accepting.exception() is None:
            await self._runner.abort(session_id)

    def answer_later(self, session_id: str, accepted: AcceptedPrompt) -> None:
        """Answer in the background; what goes wrong is stored with the answer."""
        task = asyncio.create_task(self.answer(session_id, accepted))
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, NotFound):
            log.info("a prompt got no answer: %s", error)
        elif error is not None:
            log.error("a prompt got no answer: %s", error)
