"""A command that the user runs in a session, stored as a call of the bash tool, so that the model sees it."""

import asyncio
from typing import Any

from app.agent.definitions import find as find_agent
from app.agent.definitions import prompt_text
from app.intake.user_message import default_model_of
from app.schema.message import AssistantMessage, MessageWithParts, ShellInput
from app.schema.model import Agent, Model
from app.schema.part import ModelRef, ToolPart
from app.schema.session import Busy
from app.session.rows import model_of_session
from app.tool.base import ToolContext, ToolError, ToolPermission, ToolResult
from app.tool.builtin.bash import BashParameters, BashTool
from app.turn import decide
from app.turn.part_writer import PartWriter
from app.turn.turn_context import TurnContext
from app.turn.unattended_host import UnattendedHost, require_readable
from app.util import clock, ids
from app.workspace.instance import Instance

MAX_DELAY_MS = 24 * 3600 * 1000
"""A command that the user started runs until it ends or is aborted; the timer needs some bound."""


class _ShellHost(UnattendedHost):
    """The user sees what their command prints. It needs no permission: the user asked for it. What is not theirs stays closed."""

    def __init__(self, instance: Instance, writer: PartWriter, part: ToolPart) -> None:
        self._instance = instance
        self._writer = writer
        self._part = part
        self.output = ""

    async def require_permission(self, needed: ToolPermission) -> None:
        if needed.permission == "external_directory":
            require_readable(self._instance, needed)

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.output = (metadata or {}).get("output", "")
        self._writer.tool_progress(self._part, title, metadata)


async def run(ctx: TurnContext, wanted: ShellInput) -> MessageWithParts:
    """The answer with the finished call. An abort ends the command; what it had printed is the output.

    Raises ProviderModelNotFoundError before anything is stored."""
    agent = find_agent(ctx.instance.agents, wanted.agent)
    model = wanted.model or agent.model or await _model(ctx)
    known = ctx.model(model)
    user = ctx.new_user(agent.name, model)
    user.id = wanted.message_id or user.id
    ctx.set_status(Busy())
    await ctx.write_message(user, [ctx.synthetic_text(user, prompt_text("shell-notice"))])
    message = ctx.new_assistant(user, agent.name, model)
    writer = ctx.writer(message)
    writer.enqueue_message()
    part = writer.tool_running(ids.call_id(), BashTool.id, {"command": wanted.command})
    try:
        await writer.stored()
        await _run_command(ctx, agent, known, writer, part, wanted.command)
    finally:
        await asyncio.shield(_finish(writer, message))
    return MessageWithParts.model_construct(info=message, parts=[part])


async def _run_command(ctx: TurnContext, agent: Agent, model: Model, writer: PartWriter, part: ToolPart, command: str) -> None:
    host = _ShellHost(ctx.instance, writer, part)
    context = ToolContext(
        session_id=ctx.session_id,
        message_id=part.message_id,
        call_id=part.call_id,
        agent=agent,
        model=model,
        sandbox_workspace=ctx.instance.sandbox_workspace,
        host=host,
    )
    arguments = BashParameters(command=command, description="", timeout=MAX_DELAY_MS)
    try:
        result = await ctx.services.toolbox.bash.execute(arguments, context)
    except asyncio.CancelledError:
        # Who asked for the command gets what it had printed, whoever aborted it.
        writer.tool_completed(part, ToolResult("", host.output, {"output": host.output, "description": ""}))
        return
    except ToolError as error:
        writer.tool_failed(part, f"Error: {error}")
        return
    metadata = {"output": result.metadata["output"], "description": ""}
    writer.tool_completed(part, ToolResult("", result.output, metadata))


async def _finish(writer: PartWriter, message: AssistantMessage) -> None:
    message.time.completed = clock.now_ms()
    writer.finish_open_parts()
    writer.enqueue_message()
    await writer.stored()


async def _model(ctx: TurnContext) -> ModelRef:
    """The conversation's model, else the session's, else the default one."""
    session, history, _ = await ctx.store.conversation(ctx.session_id)
    user = decide.last_user(history)
    return user.model if user else model_of_session(session) or default_model_of(ctx.instance)
