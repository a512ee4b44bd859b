from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.schema.model import Agent
from app.tool import descriptions
from app.tool.base import SubagentRequest, Tool, ToolContext, ToolPermission, ToolResult


class TaskParameters(Wire):
    description: Annotated[str, Field(description="The task in three to five words")]
    prompt: Annotated[str, Field(description="Everything the subagent has to know and do")]
    subagent_type: Annotated[str, Field(alias="subagent_type", description="Name of the subagent that is to do it")]
    session_id: Annotated[
        str | None, Field(alias="session_id", description="Session of an earlier task, to continue it instead of starting anew")
    ] = None
    command: Annotated[str | None, Field(description="The command that this task comes from, if any")] = None


class TaskTool(Tool[TaskParameters]):
    """`subagents` are those that the agent may use: each agent has its own TaskTool."""

    id = "task"
    parameters = TaskParameters

    def __init__(self, subagents: Sequence[Agent]) -> None:
        self._subagents = subagents

    def description(self) -> str:
        lines = [
            f"- {agent.name}: {agent.description or 'no description; use it when the user asks for it'}"
            for agent in self._subagents
        ]
        return "\n".join([descriptions.load(self.id).rstrip(), "", "Subagents:", *(lines or ["(none)"])])

    async def execute(self, args: TaskParameters, ctx: ToolContext) -> ToolResult:
        if not ctx.bypass_agent_check:
            about = {"description": args.description, "subagent_type": args.subagent_type}
            await ctx.host.require_permission(ToolPermission(self.id, [args.subagent_type], ["*"], about))
        return await ctx.host.run_subagent(
            SubagentRequest(
                description=args.description,
                prompt=args.prompt,
                agent=args.subagent_type,
                session_id=args.session_id,
                command=args.command,
            )
        )
