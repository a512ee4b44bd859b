"""Prompting a session: store the prompt and start its turn in one step, return the answer."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from app.intake.subagent import SubagentSessions
from app.intake.user_message import AcquireLease, Intake, IntakeOutcome, PreparedPrompt, StoredPrompt
from app.runs.turns import MOST_RUNNING, NoAnswer, Turns, TurnWork
from app.schema.errors import NotFound, SessionBusy
from app.schema.message import Message, MessageWithParts, PromptInput, UserMessage
from app.session.live import LiveSession, LiveSessions, busy_in
from app.session.rows import PromptedSession
from app.turn.turn_context import TurnServices
from app.workspace.instance import Instance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AcceptedPrompt:
    """`run` answers it; None where no answer is wanted, or the prompt was sent before and has its answer."""

    message: MessageWithParts
    known: bool
    run: TurnWork | None


class Prompts:
    """`turns` answers them; one that runs a subagent comes back here."""

    def __init__(self, services: TurnServices, intake: Intake, live: LiveSessions, most_running: int = MOST_RUNNING) -> None:
        self.turns = Turns(services, SubagentSessions(services.store, self), live, most_running)
        self._store = services.store
        self._intake = intake
        self._live = live
        self._leases = live.leases
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
            aborting = asyncio.create_task(self._live.abort(session_id), name=f"interrupt {session_id}")
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
        live, wants_answer = self._live.get(session_id), not prepared.input.no_reply
        run: TurnWork | None = None

        def start(outcome: IntakeOutcome) -> None:
            """In the moment of the commit: nothing comes in between."""
            nonlocal run
            if outcome.lease is not None:
                self._leases.keep(outcome.lease)
            if wants_answer and not outcome.known:
                run = self.turns.start(session_id, instance, nested=nested, lease=outcome.lease)

        async with live.messages:
            if prepared.message is not None and prepared.input.when_busy in ("reject", "queue"):
                await self._require_idle(live)
            acquire = self._acquire_lease(instance, live) if wants_answer else None
            stored = await self._intake.store(
                instance, session_id, prepared, start, acquire, rules_from_tools=rules_from_tools, queued_id=queued_id
            )
            if wants_answer and stored.known and await self._is_unanswered(live, stored):
                run = self.turns.start(session_id, instance, nested=nested)
            _limit(live, stored.message.info)
        return AcceptedPrompt(stored.message, stored.known, run)

    def _acquire_lease(self, instance: Instance, live: LiveSession) -> AcquireLease | None:
        """For the turn that the prompt starts, which then needs no transaction of its own for it. None where it joins one."""
        if live.is_unfinished:
            return None
        return partial(self._leases.acquire_free, session_id=live.id, status=busy_in(instance.location.directory))

    async def _require_idle(self, live: LiveSession) -> None:
        if live.is_unfinished or await self._leases.is_held_elsewhere(live.id):
            raise SessionBusy(live.id)

    async def _is_unanswered(self, live: LiveSession, stored: StoredPrompt) -> bool:
        """Of one that was sent before: a run that another server has may be writing its answer."""
        if live.works or await self._leases.is_left_to_others(live.id):
            return True
        return await self._store.answer_json(live.id, stored.message.info.id) is None

    async def answer(self, session_id: str, accepted: AcceptedPrompt) -> bytes:
        """The JSON of the message that answers: of a prompt sent twice, the answer that it got."""
        run, prompt_id = accepted.run, accepted.message.info.id
        if run is not None:
            await run.ended.wait()
            run.require_not_fenced()
        answered = await self._store.answer_json(session_id, prompt_id) if accepted.known else run and run.answer
        answered = answered or await self._store.answer_json(session_id)
        if not answered or self._live.get(session_id).unstored_end is not None:
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
            await self._live.abort(session_id)

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


def _limit(live: LiveSession, prompt: Message) -> None:
    """The turn that runs has another prompt to answer."""
    running = live.works[0] if live.works else None
    if isinstance(running, TurnWork) and isinstance(prompt, UserMessage):
        running.tighten(prompt.deadline)
