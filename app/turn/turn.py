"""A turn: from a prompt until the session is idle again. The loop reads the conversation, decides and acts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from app.providers.base import AssistantTurn, ModelRequest, TextBlock, ToolCall, UserTurn
from app.record.writer import StaleLease
from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, JsonSchemaFormat, MessageWithParts, UserMessage
from app.schema.model import Agent, Model
from app.schema.part import AgentPart, ToolPart
from app.schema.session import Busy
from app.sessions.summary import logged, prompt_without_diffs
from app.tools.base import Tool
from app.tools.builtin.conversation import TaskTool
from app.tools.external import mcp_tools
from app.tools.structured_output import STRUCTURED_OUTPUT, StructuredOutputTool
from app.turn import compaction, decide, ends, hooks
from app.turn.context import system, window
from app.turn.context.history import remind, synthetic_text, to_model_messages
from app.turn.context.window import request_options
from app.turn.decide import RequestAnswer, RunSubtask
from app.turn.part_writer import PartWriter
from app.turn.step import Step
from app.turn.tool_calls import ToolCalls
from app.turn.turn_context import TurnContext
from app.util import ids
from app.workspace import instructions
from app.workspace.agents import prompt_text, subagents_for

DIFF_TIMEOUT_SECONDS = 1.0
ABORTED_DIFF_TIMEOUT_SECONDS = 0.5
"""How long a finished or an aborted turn waits for its session's diff. A slower diff is stored when the session is idle."""


@dataclass(eq=False)
class Turn:
    _ctx: TurnContext
    _steps: int = 0
    _last_request: tuple[Sequence[MessageWithParts], int | None] | None = None
    """The conversation of the newest request, and the tokens that a request may have; None if unknown."""
    _diff_timeout: float = DIFF_TIMEOUT_SECONDS

    async def run(self) -> None:
        deadline = self._ctx.deadline
        try:
            async with deadline.limit():
                await self._loop()
            if self._last_request is not None:
                pruning = compaction.prune(self._ctx, *self._last_request)
                await logged(self._ctx.session_id, "old tool outputs", pruning)
        except asyncio.CancelledError:
            await self._answer_cancelled()
            raise
        except StaleLease:
            raise
        except Exception as error:  # noqa: BLE001  stored and logged in `error_of_turn`
            if isinstance(error, TimeoutError) and deadline.has_passed():
                await self._answer_cancelled()
            else:
                await self._answer_with(ends.error_of_turn(self._ctx.session_id, error))
        finally:
            if (diffs := self._ctx.diffs.finish()) is not None:
                await asyncio.wait({diffs}, timeout=self._diff_timeout)  # nothing waits for the title

    async def _loop(self) -> None:
        ctx, goes_on = self._ctx, True
        while goes_on or ctx.joined.is_set():
            await ctx.read()
            ctx.live.set_status(ctx.directory, Busy())  # in one commit with the answer's message
            ctx.deadline.follow(ctx.history)
            goes_on = await self._act(decide.next_action(ctx.history))

    async def _act(self, decision: decide.Decision | None) -> bool:
        """Returns whether the turn goes on, even without another prompt."""
        self._steps += 1
        self._ctx.record.failure, self._ctx.record.rejected = None, False
        match decision:
            case None:
                return False
            case decide.GiveUp():
                await self._ctx.give_up(decision.error)
                return False
            case decide.Resume():
                return await self._resume(decision.message)
            case decide.RunSubtask():
                await _run_subtask(self._ctx, decision)
                return True
            case decide.Compact():
                is_summarised = await compaction.run(self._ctx, decision.user, auto=decision.auto)
                self._ctx.diffs.request(decision.user.id)  # messages that were reverted may be gone
                # A prompt that came after it is answered even without a summary.
                return is_summarised or decide.newest(self._ctx.history, UserMessage) is not decision.user
            case decide.RequestAnswer():
                return await self._answer(decision)
            case _:
                assert_never(decision)

    # Answering.

    async def _answer(self, decision: RequestAnswer) -> bool:
        user, finished, history = decision.user, decision.last_finished, self._ctx.history
        model = self._ctx.instance.models.find(user.model)
        is_overflow = partial(window.is_overflow, self._ctx.instance, model)
        if finished and not finished.summary and is_overflow(window.used_tokens(finished, history, model)):
            return await compaction.make_room(self._ctx, user)
        step = await self._run_step(user, model)
        if step.overflow is not None:
            return await compaction.after_overflow(self._ctx, user, step.message, step.overflow)
        self._last_request = history, window.usable_tokens(self._ctx.instance, model)
        if self._steps == 1 and (lost := prompt_without_diffs(history, user.id)) is not None:
            self._ctx.diffs.request(lost)
        self._ctx.diffs.request(user.id, step.trees)
        if step.is_stopped:
            return False
        if is_overflow(step.used_tokens):
            return await compaction.make_room(self._ctx, user)
        return not decide.is_final(step.message, user)

    async def _run_step(self, user: UserMessage, model: Model) -> Step:
        ctx = self._ctx
        agent = ctx.instance.agent(user.agent)
        ctx.record.agent, ctx.record.provider, ctx.record.model = agent.name, model.provider_id, model.id
        message = ctx.new_assistant(user, agent.name, user.model)
        writer = PartWriter(ctx.store, ctx.directory, message)
        writer.enqueue_message()
        names_agent = _names_agent(ctx.history, user)
        tools = await self._tools(user, agent, model, message, names_agent)
        calls = ToolCalls(ctx, writer, tools, agent, model, bypass_agent_check=names_agent)
        step = Step(ctx, calls)
        # A task of its own: an event of the stream then resumes the step alone, not all frames of the turn around it.
        await asyncio.create_task(step.run(partial(self._request, user, agent, model, calls)), name="step")
        return step

    async def _resume(self, open_message: MessageWithParts) -> bool:
        """Continues an answer that waited for the user when an earlier server stopped: asks again, then runs the calls."""
        ctx, message = self._ctx, open_message.info
        assert isinstance(message, AssistantMessage)
        asked = await ctx.store.message(ctx.session_id, message.parent_id)
        prompt = asked.info
        assert isinstance(prompt, UserMessage)
        agent, model = ctx.instance.agent(message.agent), ctx.instance.models.find(prompt.model)
        writer, names_agent = PartWriter(ctx.store, ctx.directory, message), _names_agent([asked], prompt)
        tools = await self._tools(prompt, agent, model, message, names_agent)
        calls = ToolCalls(ctx, writer, tools, agent, model, bypass_agent_check=names_agent)
        step = Step(ctx, calls)
        await step.resume(open_message.parts)
        ctx.diffs.request(prompt.id)
        return not (step.is_stopped or decide.is_final(message, prompt))

    async def _tools(
        self, user: UserMessage, agent: Agent, model: Model, answer: AssistantMessage, names_agent: bool
    ) -> dict[str, Tool[Any]]:
        """The tools of a request: the toolbox, the plugins' and the MCP servers' tools, without those that the prompt switches
        off; and the tool for the structured `answer`. A prompt that names an agent has `task`, whatever the rules say."""
        instance, toolbox = self._ctx.instance, self._ctx.services.toolbox
        given, key = instance.extensions, (agent.name, model.provider_id, model.id)
        if key not in instance.chosen_tools:  # those of the server and of plugins, which do not change
            subagents = subagents_for(agent, instance.agents)
            own = toolbox.for_agent(model, agent, instance.config, instance.flags, subagents, given.skills)
            instance.chosen_tools[key] = own | toolbox.external(given.tools, agent)
        tools = instance.chosen_tools[key]
        if offers := await given.mcp.offers(in_turn=True):
            tools = tools | toolbox.external(mcp_tools(given.mcp, offers), agent)
        if names_agent and TaskTool.id not in tools:
            tools = tools | {TaskTool.id: TaskTool(subagents_for(agent, instance.agents))}
        switched = user.tools or {}
        offered = {name: tool for name, tool in tools.items() if switched.get(name, True)}
        if isinstance(user.format, JsonSchemaFormat):
            offered[STRUCTURED_OUTPUT] = StructuredOutputTool(user.format.schema_, partial(setattr, answer, "structured"))
        return offered

    async def _request(self, user: UserMessage, agent: Agent, model: Model, calls: ToolCalls) -> ModelRequest:
        instance, history = self._ctx.instance, self._ctx.history
        instructed = await instructions.blocks(instructions.InstructionScope.of(instance), self._ctx.services.instruction_pages)
        call = [system.environment(instance.location, model), *instructed]
        reminded = await hooks.messages(instance.extensions.hooks, remind(history, agent, self._steps))
        messages = to_model_messages(reminded, model)
        if agent.steps is not None and self._steps >= agent.steps:
            messages = (*messages, AssistantTurn((TextBlock(prompt_text("max-steps")),)))
        assembled, is_structured = system.assemble(agent, model, call, user), decide.wants_structure(user)
        if is_structured:
            assembled = (*assembled, prompt_text("structured-output"))
            messages = (*messages, *_structure_reminder(history, user))
        request = ModelRequest(
            model=model,
            system=assembled,
            messages=messages,
            session_id=self._ctx.session_id,
            tools=calls.specs(),
            requires_tool=is_structured,
            **request_options(instance, model, agent, user),
        )
        return await hooks.request(instance, request, agent, user)

    # Ending.

    async def _answer_cancelled(self) -> None:
        if self._ctx.title is not None:
            self._ctx.title.cancel()
        self._diff_timeout = ABORTED_DIFF_TIMEOUT_SECONDS
        await asyncio.shield(self._answer_with(self._ctx.deadline.error()))

    async def _answer_with(self, error: MessageError) -> None:
        self._ctx.record.failure = error
        ctx, worktree = self._ctx, self._ctx.instance.location.worktree
        await ends.answer_with(ctx.store, ctx.session_id, ctx.directory, error, worktree)


def _structure_reminder(history: Sequence[MessageWithParts], prompt: UserMessage) -> tuple[UserTurn, ...]:
    """For a model whose last answer was text alone."""
    answers = decide.answers_to(history, prompt)
    is_text = bool(answers) and not any(isinstance(part, ToolPart) for part in answers[-1].parts)
    return (UserTurn((TextBlock(prompt_text("structured-output-reminder")),)),) if is_text else ()


def _names_agent(history: Sequence[MessageWithParts], prompt: UserMessage) -> bool:
    """Whether the user has asked for the subagent, which then needs no permission."""
    return any(isinstance(part, AgentPart) for message in history if message.info.id == prompt.id for part in message.parts)


async def _run_subtask(ctx: TurnContext, task: RunSubtask) -> None:
    asked, user = task.task, task.user
    agent, wanted = ctx.instance.agent(user.agent), asked.model or user.model
    model = ctx.instance.models.find(wanted)
    message = ctx.new_assistant(user, asked.agent, wanted)
    writer = PartWriter(ctx.store, ctx.directory, message)
    writer.enqueue_message()
    tools = {TaskTool.id: TaskTool(subagents_for(agent, ctx.instance.agents))}
    calls = ToolCalls(ctx, writer, tools, agent, model, bypass_agent_check=True)
    arguments = {
        "prompt": asked.prompt,
        "description": asked.description,
        "subagent_type": asked.agent,
        **({"command": asked.command} if asked.command else {}),
    }
    await Step(ctx, calls).run_call(ToolCall(ids.call_id(), TaskTool.id, arguments))
    if asked.command and message.error is None:  # the session's agent is prompted to use the result
        prompt = ctx.new_user(user.agent, user.model, continues=user)
        await ctx.write_message(prompt, [synthetic_text(prompt, prompt_text("subtask-continue"))], waits=True)
