"""Prompting a session: store the prompt and start its turn in one step, return the answer."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.permissions.rules import child_rules
from app.record.engine import Connection
from app.record.repositories import message_rows
from app.record.writer import Lease
from app.schema.errors import NoAnswer, NotFound, SessionBusy
from app.schema.message import AssistantMessage, MessageWithParts, PromptInput, UserMessage
from app.schema.model import Agent
from app.schema.part import Completed, ModelRef, Part, TextPart, TextPartInput, ToolPart
from app.schema.permission import Rule, Ruleset
from app.schema.session import Session
from app.sessions.fork import new_session
from app.sessions.lease import ACQUIRE_RETRY_SECONDS, PromptsKeptOut
from app.sessions.live import LiveSession, LiveSessions
from app.sessions.rows import PromptedSession
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.tools.base import TaskParameters, ToolError, ToolResult
from app.turn.intake.intake import Intake, PreparedPrompt
from app.turn.runs.turns import Turns, TurnWork
from app.turn.tool_calls import ToolRun
from app.turn.turn_context import TurnServices
from app.util.tasks import TaskSet
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

MAX_SUBAGENTS = 100
"""Of one user at once."""


@dataclass(frozen=True, slots=True)
class AcceptedPrompt:
    """`run` answers the prompt; None if no answer is wanted, or the prompt was sent before and has its answer."""

    message: MessageWithParts
    known: bool
    run: TurnWork | None


class Prompts:
    """`turns` answers the prompts; a turn that runs a subagent calls back here."""

    def __init__(self, services: TurnServices, intake: Intake, live: LiveSessions, most_running: int) -> None:
        self.turns = Turns(services, partial(run_subagent, services.store, self), live, most_running)
        self._store = services.store
        self._intake = intake
        self._live = live
        self._leases = live.leases
        self.subagents: Counter[str] = Counter()
        """How many run, by the owner of their sessions."""
        self._background = TaskSet()

    async def accept(
        self,
        instance: Instance,
        prompted: PromptedSession,
        prompt: PromptInput,
        *,
        nested: bool = False,
        content: str | None = None,
    ) -> AcceptedPrompt:
        """Stores a prompt and starts the turn that answers it, or joins the running one: no other request comes in between. Waits
        for requests that change the session's messages. Errors of the prompt are raised before anything is stored.

        `nested`: a turn waits for the answer; the prompt's `tools` map does not replace the session's permission rules.
        `content`: as for `Intake.prepare`. Raises SessionBusy for a prompt that must not join a turn.
        """
        session_id = prompted.session.id
        prepared = await self._intake.prepare(instance, prompted, prompt, content)
        if prompt.when_busy == "interrupt":
            await self._interrupt(session_id, prepared)
        return await self.accept_prepared(instance, session_id, prepared, nested=nested)

    async def _interrupt(self, session_id: str, prepared: PreparedPrompt) -> None:
        """Does not abort the turn of this very prompt, which its client may have sent twice: under the lock the prompt is stored,
        or its turn has not started and another's is aborted."""
        async with self._live.get(session_id).messages:
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
        nested: bool = False,
        queued_id: str | None = None,
    ) -> AcceptedPrompt:
        """Waits while prompts are kept out. `queued_id`: the prompt's in the queue, which it leaves now. Raises what
        `Intake.change` raises, and NotFound for a known message that was deleted meanwhile."""
        while True:
            with suppress(PromptsKeptOut):
                return await self._accept_now(instance, session_id, prepared, nested=nested, queued_id=queued_id)
            await asyncio.sleep(ACQUIRE_RETRY_SECONDS)

    async def _accept_now(
        self, instance: Instance, session_id: str, prepared: PreparedPrompt, *, nested: bool, queued_id: str | None
    ) -> AcceptedPrompt:
        """Raises PromptsKeptOut."""
        live, prompt, wants_answer = self._live.get(session_id), prepared.input, not prepared.input.no_reply
        needs_idle = prepared.message is not None and prompt.when_busy in ("reject", "queue")
        run: TurnWork | None = None

        def start(storing: asyncio.Future[tuple[bool, Lease | None]]) -> None:
            """Runs at the commit: nothing comes in between, and the caller's cancellation does not prevent it."""
            nonlocal run
            if storing.exception() is not None:
                return
            known, lease = storing.result()
            if lease is not None:
                self._leases.keep(lease)
            if wants_answer and not known:
                run = self.turns.start(session_id, instance, nested=nested, lease=lease)

        async with live.messages:
            if needs_idle and live.is_unfinished:
                raise SessionBusy(session_id)
            storing = self._post(instance, live, prepared, queued_id, nested=nested, needs_idle=needs_idle)
            storing.add_done_callback(start)
            known, _ = await asyncio.shield(storing)
            message = prepared.message
            if message is None or known:
                assert prompt.message_id is not None
                message = await self._store.message(session_id, prompt.message_id)
                if wants_answer and await self._is_unanswered(live, prompt.message_id):
                    run = self.turns.start(session_id, instance, nested=nested)
            _tighten_deadline(live, message)
        return AcceptedPrompt(message, known, run)

    def _post(
        self,
        instance: Instance,
        live: LiveSession,
        prepared: PreparedPrompt,
        queued_id: str | None,
        *,
        nested: bool,
        needs_idle: bool,
    ) -> asyncio.Future[tuple[bool, Lease | None]]:
        """Posts the change that stores the prompt. If it begins a turn, the change also acquires the lease for it."""
        location, leases = instance.location, self._leases
        begins = not prepared.input.no_reply and not live.is_unfinished

        def acquire(connection: Connection) -> Lease | None:
            lease = leases.acquire_free(connection, live.id, location.directory) if begins else None
            if lease is None and leases.held(live.id) is None:
                leases.require_admission(connection, live.id, needs_idle=needs_idle)
            return lease

        change = self._intake.change(prepared, queued_id, acquire, nested=nested, location=location)
        return self._store.post(live.id, location.directory, change)

    async def _is_unanswered(self, live: LiveSession, message_id: str) -> bool:
        """Whether a prompt that was sent before has no answer yet: another server's run may be writing it."""
        if live.works or await self._leases.is_left_to_others(live.id):
            return True
        return await self._store.answer_json(live.id, message_id) is None

    async def answer(self, session_id: str, accepted: AcceptedPrompt) -> bytes:
        """The JSON of the message that answers; of a prompt that was sent twice, the first answer. One that has joined a turn
        shares the turn's."""
        run, prompt_id = accepted.run, accepted.message.info.id
        if run is not None:
            await run.ended.wait()
            run.require_not_fenced()
        answered = run.answer if run and not accepted.known else None
        answered = answered or await self._store.answer_json(session_id, prompt_id)
        if not answered:
            shares = await self._store.query(message_rows.next_answered, session_id, prompt_id)
            answered = await self._store.answer_json(session_id, shares)
        if not answered or self._live.get(session_id).unstored_end is not None:
            raise NoAnswer(f"The prompt {prompt_id} got no answer that could be stored; see the server's log")
        return answered

    async def answer_nested(self, instance: Instance, session_id: str, prompt: PromptInput) -> bytes:
        """Accepts the prompt of a turn that waits for the answer, and answers. Cancelled, aborts the session's turn."""
        prompted = await self._store.session_to_prompt(session_id)
        accepting = asyncio.create_task(self.accept(instance, prompted, prompt, nested=True))
        try:
            return await self.answer(session_id, await asyncio.shield(accepting))
        except asyncio.CancelledError:
            await asyncio.shield(self._abort_accepted(session_id, accepting))
            raise

    async def _abort_accepted(self, session_id: str, accepting: asyncio.Task[AcceptedPrompt]) -> None:
        """A prompt that was being accepted is stored; its answer says then that it was aborted."""
        await asyncio.wait({accepting})
        if accepting.exception() is None:
            await self._live.abort(session_id)

    def answer_later(self, session_id: str, accepted: AcceptedPrompt) -> None:
        """Answers in the background; an error is stored with the answer."""
        self._background.start(self.answer(session_id, accepted), f"answer {session_id}").add_done_callback(_log_failure)


def _log_failure(answering: asyncio.Task[bytes]) -> None:
    error = None if answering.cancelled() else answering.exception()
    if error is not None:
        log.log(logging.INFO if isinstance(error, NotFound) else logging.ERROR, "a prompt got no answer: %s", error)


async def run_subagent(store: Store, prompts: Prompts, call: ToolRun, request: TaskParameters) -> ToolResult:
    """Raises ToolError if too many run already: subagents that start subagents would soon be thousands."""
    owner = call.session.owner or ""
    if prompts.subagents[owner] >= MAX_SUBAGENTS:
        raise ToolError(f"{MAX_SUBAGENTS} subagents run, as many as may. Do it yourself, or try again when some have ended.")
    prompts.subagents[owner] += 1
    try:
        return await _run_subagent(store, prompts, call, request)
    finally:
        prompts.subagents[owner] -= 1


async def _run_subagent(store: Store, prompts: Prompts, call: ToolRun, request: TaskParameters) -> ToolResult:
    agent = call.instance.agents.get(request.subagent_type)
    if agent is None:
        raise ToolError(f"Unknown agent type: {request.subagent_type} is not a valid agent type")
    off, caller = _switched_off(agent, call.instance), call.writer.message
    if request.session_id:
        session = await _resumed(store, call, request.session_id)
    else:
        session = await _child(store, call, agent, off, request)
    model = agent.model or ModelRef(provider_id=caller.provider_id, model_id=caller.model_id)
    prompt = PromptInput(agent=agent.name, model=model, tools=off, parts=[TextPartInput(text=request.prompt)])
    progress = _Progress(call, request.description, session.id, model)
    progress.show()
    with store.watching(session.id, progress.on_part):
        answer = await prompts.answer_nested(call.instance, session.id, prompt)
    return _result(request, MessageWithParts.model_validate_json(answer), progress.metadata())


async def _child(store: Store, call: ToolRun, agent: Agent, off: dict[str, bool], request: TaskParameters) -> Session:
    own: Ruleset = [Rule(permission=tool, pattern="*", action="deny") for tool in off]
    title = f"{request.description} (@{agent.name} subagent)"
    session = new_session(call.instance.location, title, call.session.id)

    def create(tx: SessionTx) -> Session:
        above = tx.of(call.session.id).session()  # as it is now: rules that were set meanwhile hold for the child too
        parent = [*call.agent.permission, *(above.permission or [])]
        rules = child_rules(parent, agent.permission, own)
        child = session.model_copy(update={"permission": rules, "owner": above.owner, "agent": agent.name})
        tx.create(child)
        return child

    return await store.write(session.id, call.instance.location.directory, create)


async def _resumed(store: Store, call: ToolRun, session_id: str) -> Session:
    """A session may resume only a child that it has started itself: another's could have more rights."""
    session = (await store.sessions([session_id])).get(session_id)
    if session is None or session.parent_id != call.session.id:
        raise ToolError(f"Session {session_id} is not a task of this conversation. Leave session_id out to start a new one.")
    return session


class _Progress:
    """What the caller's part shows of the child: its tool calls so far."""

    def __init__(self, call: ToolRun, title: str, session_id: str, model: ModelRef) -> None:
        self._call = call
        self._title = title
        self._session_id = session_id
        self._model = model
        self._calls: dict[str, dict[str, Any]] = {}

    def on_part(self, part: Part) -> None:
        if isinstance(part, ToolPart):
            titled = {"title": part.state.title} if isinstance(part.state, Completed) else {}
            state = {"status": part.state.status, **titled}
            self._calls[part.id] = {"id": part.id, "tool": part.tool, "state": state}
            self.show()

    def show(self) -> None:
        self._call.writer.tool_progress(self._call.part, self._title, self.metadata())

    def metadata(self) -> dict[str, Any]:
        return {
            "summary": list(self._calls.values()),
            "parentSessionId": self._call.session.id,
            "sessionId": self._session_id,
            "model": self._model.wire(),
        }


def _tighten_deadline(live: LiveSession, message: MessageWithParts) -> None:
    """The running turn ends by this prompt's deadline too."""
    running, prompt = live.works[0] if live.works else None, message.info
    if isinstance(running, TurnWork) and running.deadline and isinstance(prompt, UserMessage) and prompt.deadline is not None:
        running.deadline.tighten(prompt.deadline)


def _switched_off(agent: Agent, instance: Instance) -> dict[str, bool]:
    """A subagent keeps no todo list of its own, starts tasks only if its rules name them, and has no tools that the configuration
    keeps for primary agents."""
    may_delegate = any(rule.permission == "task" for rule in agent.permission)
    tools = ["todowrite", "todoread", *([] if may_delegate else ["task"]), *instance.config.experimental.primary_tools]
    return dict.fromkeys(tools, False)


def _result(request: TaskParameters, answer: MessageWithParts, metadata: dict[str, Any]) -> ToolResult:
    info = answer.info
    if isinstance(info, AssistantMessage) and info.error is not None:
        reason = getattr(info.error.data, "message", info.error.name)
        raise ToolError(f"The subagent failed (session_id: {metadata['sessionId']}): {reason}")
    texts = [part.text for part in answer.parts if isinstance(part, TextPart)]
    text = texts[-1] if texts else ""
    output = f"{text}\n\n<task_metadata>\nsession_id: {metadata['sessionId']}\n</task_metadata>"
    return ToolResult(title=request.description, output=output, metadata=metadata)
