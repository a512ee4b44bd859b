"""A turn: from a prompt until the session is idle again. The loop reads the conversation, decides and acts."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, assert_never

from app.agent.definitions import find as find_agent
from app.agent.definitions import prompt_text, subagents_for
from app.context import instructions, reminders, system, window
from app.context.call_options import request_options
from app.context.history import to_model_messages
from app.provider.base import AssistantTurn, ModelRequest, TextBlock, ToolSpec
from app.schema.agent import Agent
from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, MessagePath, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import AgentPart, ModelRef, ToolPart
from app.schema.session import Busy, Session
from app.storage.writer import StaleLease
from app.tool.base import Tool
from app.tool.mcp_tool import mcp_tools
from app.turn import compaction, decide, hooks, prune, stored_error, structured_output, subtask
from app.turn.compaction import Compactions
from app.turn.decide import AskModel
from app.turn.step import Step, StepOutcome, StepTrees, ignore_close
from app.turn.turn_diffs import TurnDiffs, prompt_without_diffs
from app.turn.turn_scope import TurnScope

log = logging.getLogger(__name__)

DIFF_TIMEOUT_SECONDS = 1.0
ABORTED_DIFF_TIMEOUT_SECONDS = 0.5
"""How long a finished or an aborted turn waits for its session's diff. A slower diff is stored when the session is idle."""


class Turn:
    """`joined` returns whether a prompt has arrived since its last call."""

    def __init__(self, scope: TurnScope, joined: Callable[[], bool]) -> None:
        self._scope = scope
        self._joined = joined
        self._steps = 0
        self._compactions = Compactions(scope)
        self._last_request: prune.LastRequest | None = None
        self._session: Session
        self._answered = asyncio.Event()
        self._title: asyncio.Task[None] | None = None
        start_task = partial(scope.services.tasks.start, scope.session_id, "diff")
        self._diffs = TurnDiffs(scope.update_diffs, scope.put_empty_diff, start_task)
        self._diff_timeout = DIFF_TIMEOUT_SECONDS

    async def run(self) -> None:
        deadline = self._scope.deadline
        try:
            async with deadline.limit():
                await self._loop()
            await self._prune()
        except asyncio.CancelledError:
            await self._answer_cancelled()
            raise
        except StaleLease:
            raise
        except Exception as error:  # noqa: BLE001  stored and logged in `of_turn`
            if isinstance(error, TimeoutError) and deadline.has_passed():
                await self._answer_cancelled()
            else:
                await self._answer_with(stored_error.of_turn(self._scope.session_id, error))
        finally:
            await self._finish_diffs()
            self._answered.set()

    async def _loop(self) -> None:
        while True:
            self._joined()
            self._session, history, self._diffs.basis = await self._scope.store.conversation(self._scope.session_id)
            self._scope.set_status(Busy())  # in one commit with the answer's message
            self._scope.deadline.follow(history)
            if not await self._act(decide.next_action(history), history):
                return

    async def _act(self, decision: decide.Decision, history: Sequence[MessageWithParts]) -> bool:
        """Whether the turn goes on."""
        self._steps += 1
        self._scope.record.begin_step()
        match decision:
            case decide.Stop():
                return False
            case decide.GiveUp():
                await stored_error.give_up(self._scope, history, decision.reason)
                return False
            case decide.Resume():
                return await self._resume(decision.message, history)
            case decide.LackStructuredOutput():
                await stored_error.lack_structured_output(self._scope, decision.answer, decision.retries)
                return False
            case decide.RunSubtask():
                await subtask.run(self._scope, decision)
                return True
            case decide.Compact():
                is_summarised = await compaction.run(self._scope, decision.user, history, auto=decision.auto)
                return is_summarised or decide.last_user(history) is not decision.user  # a prompt behind it is answered without
            case decide.AskModel():
                return await self._answer(decision, history)
            case _:
                assert_never(decision)

    # Answering.

    async def _answer(self, decision: AskModel, history: Sequence[MessageWithParts]) -> bool:
        user, finished = decision.user, decision.last_finished
        model = self._scope.model(user.model)
        if finished and not finished.summary and self._overflows(model, window.used_tokens(finished, history, model)):
            return await self._compactions.make_room(user, history)
        outcome, step = await self._ask_model(user, model, history)
        if step.overflow is not None:
            return await self._compactions.after_overflow(user, step.message, step.overflow) or self._joined()
        self._last_request = prune.LastRequest(history, window.usable_tokens(self._scope.instance, model))
        self._request_diffs(user.id, history, step.trees)
        if outcome is not StepOutcome.STOPPED and self._overflows(model, step.used_tokens):
            return await self._compactions.make_room(user, history)
        goes_on = outcome is StepOutcome.GOES_ON or structured_output.lacks(step.message, user)
        return (goes_on and outcome is not StepOutcome.STOPPED) or self._joined()

    def _overflows(self, model: Model, used: int) -> bool:
        return window.is_overflow(self._scope.instance, model, used)

    async def _ask_model(self, user: UserMessage, model: Model, history: Sequence[MessageWithParts]) -> tuple[StepOutcome, Step]:
        scope, session = self._scope, self._session
        agent = find_agent(scope.instance.agents, user.agent)
        scope.record.asks(agent.name, model.provider_id, model.id)
        message = scope.new_assistant(user, agent.name, ModelRef(provider_id=model.provider_id, model_id=user.model.model_id))
        on_close = self._diffs.begin if _is_first_step(session, history) else ignore_close
        step = scope.step(message, model, lambda: self._start_title(session, history), on_close)
        step.writer.enqueue_message()
        prompt = next(m for m in reversed(history) if isinstance(m.info, UserMessage))
        calls = scope.calls(
            step.writer,
            await self._tools(user, agent, model, message),
            session,
            agent,
            model,
            _calls_of_turn(history),
            seen_instructions=instructions.seen_in(history),
            bypass_agent_check=_names_agent(prompt),
        )
        outcome = await step.run(calls, lambda: self._request(user, agent, model, history, calls.specs()))
        return outcome, step

    async def _resume(self, open_message: MessageWithParts, history: Sequence[MessageWithParts]) -> bool:
        """Continues an answer that waited for the user when an earlier server stopped: asks again, then runs the calls."""
        scope, message = self._scope, open_message.info
        assert isinstance(message, AssistantMessage)
        asked = await scope.store.message(scope.session_id, message.parent_id)
        prompt = asked.info
        assert isinstance(prompt, UserMessage)
        agent, model = find_agent(scope.instance.agents, message.agent), scope.model(prompt.model)
        step = scope.step(message, model)
        calls = scope.calls(
            step.writer,
            await self._tools(prompt, agent, model, message),
            self._session,
            agent,
            model,
            seen_instructions=instructions.seen_in(history),
            bypass_agent_check=_names_agent(asked),
        )
        outcome = await step.resume(calls, open_message.parts)
        self._diffs.request(prompt.id)
        return outcome is StepOutcome.GOES_ON or self._joined()

    async def _tools(self, user: UserMessage, agent: Agent, model: Model, answer: AssistantMessage) -> dict[str, Tool[Any]]:
        """The tools of a request: the toolbox and the MCP servers' tools, without those that the prompt switches off; and the one
        for the structured `answer`."""
        mcp, toolbox = self._scope.instance.extensions.mcp, self._scope.services.toolbox
        tools = self._chosen_tools(agent, model) | toolbox.external(mcp_tools(mcp, await mcp.offers()), agent)
        switched_off = {name for name, on in (user.tools or {}).items() if not on}
        offered = {name: tool for name, tool in tools.items() if name not in switched_off}
        return offered | structured_output.tool_for(user, answer)

    def _chosen_tools(self, agent: Agent, model: Model) -> dict[str, Tool[Any]]:
        """Of the server and of plugins. Chosen once for an instance, as nothing changes that they are chosen by."""
        instance, toolbox = self._scope.instance, self._scope.services.toolbox
        key = (agent.name, model.provider_id, model.id)
        if key not in instance.chosen_tools:
            given, subagents = instance.extensions, subagents_for(agent, instance.agents)
            own = toolbox.for_agent(model, agent, instance.config, instance.flags, subagents, given.skills)
            instance.chosen_tools[key] = own | toolbox.external(given.tools, agent)
        return instance.chosen_tools[key]

    async def _request(
        self, user: UserMessage, agent: Agent, model: Model, history: Sequence[MessageWithParts], tools: tuple[ToolSpec, ...]
    ) -> ModelRequest:
        instance = self._scope.instance
        instructed = await instructions.blocks(instructions.InstructionScope.of(instance), self._scope.services.instruction_pages)
        call = [system.environment(instance.location, model), *instructed]
        reminded = await hooks.messages(instance.extensions.hooks, reminders.remind(history, agent, self._steps))
        messages = to_model_messages(reminded, model)
        if agent.steps is not None and self._steps >= agent.steps:
            messages = (*messages, AssistantTurn((TextBlock(prompt_text("max-steps")),)))
        request = ModelRequest(
            model=model,
            system=(*system.assemble(agent, model, call, user), *structured_output.instructions(user)),
            messages=(*messages, *structured_output.reminders(history, user)),
            session_id=self._scope.session_id,
            tools=tools,
            requires_tool=structured_output.is_wanted(user),
            **request_options(instance, model, agent, user),
        )
        return await hooks.request(instance, request, agent, user)

    # Ending.

    async def _answer_cancelled(self) -> None:
        if self._title is not None:
            self._title.cancel()
        self._diff_timeout = ABORTED_DIFF_TIMEOUT_SECONDS
        await asyncio.shield(self._answer_with(self._scope.deadline.error()))

    async def _answer_with(self, error: MessageError) -> None:
        self._scope.record.failure = error
        location = self._scope.instance.location
        path = MessagePath(cwd=location.directory, root=location.worktree)
        await stored_error.answer_with(self._scope.store, self._scope.session_id, path, error)

    # Beside the loop.

    async def _prune(self) -> None:
        if self._last_request is not None:
            await _logged(prune.run(self._scope, self._last_request), "old tool outputs")

    def _start_title(self, session: Session, history: Sequence[MessageWithParts]) -> None:
        """Starts the title once a turn, after the answer has begun, so that it does not delay the answer."""
        if self._title is None:
            self._title = self._scope.services.titles.start(self._scope.instance, session, history, self._answered)

    def _request_diffs(self, prompt_id: str, history: Sequence[MessageWithParts], trees: StepTrees | None) -> None:
        if self._steps == 1 and (lost := prompt_without_diffs(history, prompt_id)) is not None:
            self._diffs.request(lost)
        self._diffs.request(prompt_id, trees)

    async def _finish_diffs(self) -> None:
        """Waits until the diffs are stored, up to the timeout. Does not wait for the title."""
        diffs = self._diffs.finish()
        if diffs is not None:
            await asyncio.wait({diffs}, timeout=self._diff_timeout)


async def _logged(work: Coroutine[Any, Any, None], what: str) -> None:
    """Logs an error, which must not end the turn."""
    try:
        await work
    except Exception:
        log.exception("could not bring %s up to date", what)


def _names_agent(prompt: MessageWithParts) -> bool:
    """Then the user has asked for the subagent: it needs no permission."""
    return any(isinstance(part, AgentPart) for part in prompt.parts)


def _is_first_step(session: Session, history: Sequence[MessageWithParts]) -> bool:
    """Whether the session has no diff yet, nor steps that it could be made of."""
    return session.summary is None and all(isinstance(message.info, UserMessage) for message in history)


def _calls_of_turn(history: Sequence[MessageWithParts]) -> list[ToolPart]:
    """The tool calls since the newest prompt, oldest first."""
    calls: list[ToolPart] = []
    for message in reversed(history):
        if isinstance(message.info, UserMessage):
            break
        calls[:0] = [part for part in message.parts if isinstance(part, ToolPart)]
    return calls
