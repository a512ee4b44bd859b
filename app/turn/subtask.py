"""Subtasks: runs a task that the user gave to a subagent, as a call of the task tool that needs no permission."""

from app.agent.definitions import find as find_agent
from app.agent.definitions import prompt_text, subagents_for
from app.provider.base import ToolCall
from app.schema.message import UserMessage
from app.schema.part import ModelRef
from app.tool.builtin.task import TaskTool
from app.turn.decide import RunSubtask
from app.turn.turn_scope import TurnScope
from app.util import ids


async def run(scope: TurnScope, task: RunSubtask) -> None:
    asked, user = task.task, task.user
    agent = find_agent(scope.instance.agents, user.agent)
    model = scope.model(asked.model or user.model)
    message = scope.new_assistant(user, asked.agent, ModelRef(provider_id=model.provider_id, model_id=model.id))
    step = scope.step(message, model)
    step.writer.enqueue_message()
    tools = {TaskTool.id: TaskTool(subagents_for(agent, scope.instance.agents))}
    calls = scope.calls(step.writer, tools, await scope.session(), agent, model, bypass_agent_check=True)
    arguments = {
        "prompt": asked.prompt,
        "description": asked.description,
        "subagent_type": asked.agent,
        **({"command": asked.command} if asked.command else {}),
    }
    await step.run_call(calls, ToolCall(ids.call_id(), TaskTool.id, arguments))
    if asked.command and message.error is None:
        await _ask_to_continue(scope, user)


async def _ask_to_continue(scope: TurnScope, user: UserMessage) -> None:
    """Prompts the session's agent to use the result of a command's subagent."""
    message = scope.new_user(user.agent, user.model, continues=user)
    await scope.write_message(message, [scope.synthetic_text(message, prompt_text("subtask-continue"))], waits=True)
