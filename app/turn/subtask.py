"""Subtasks: runs a task that the user gave to a subagent, as a call of the task tool that needs no permission."""

from app.agent.definitions import find as find_agent
from app.agent.definitions import prompt_text, subagents_for
from app.provider.base import ToolCall
from app.schema.message import UserMessage
from app.schema.part import ModelRef
from app.tool.builtin.conversation import TaskTool
from app.turn.decide import RunSubtask
from app.turn.step import Step
from app.turn.tool_calls import ToolCalls
from app.turn.turn_context import TurnContext
from app.util import ids


async def run(ctx: TurnContext, task: RunSubtask) -> None:
    asked, user = task.task, task.user
    agent = find_agent(ctx.instance.agents, user.agent)
    model = ctx.model(asked.model or user.model)
    message = ctx.new_assistant(user, asked.agent, ModelRef(provider_id=model.provider_id, model_id=model.id))
    writer = ctx.writer(message)
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
    if asked.command and message.error is None:
        await _ask_to_continue(ctx, user)


async def _ask_to_continue(ctx: TurnContext, user: UserMessage) -> None:
    """Prompts the session's agent to use the result of a command's subagent."""
    message = ctx.new_user(user.agent, user.model, continues=user)
    await ctx.write_message(message, [ctx.synthetic_text(message, prompt_text("subtask-continue"))], waits=True)
