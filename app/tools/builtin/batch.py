import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from app.permissions.questions import QuestionRejected
from app.permissions.service import PermissionRejected
from app.schema.base import Wire
from app.tools.base import Tool, ToolContext, ToolError, ToolResult

MAX_CALLS = 25


class BatchCall(Wire):
    tool: Annotated[str, Field(description="Name of the tool")]
    parameters: Annotated[dict[str, Any], Field(description="Its arguments")]


class BatchParameters(Wire):
    tool_calls: Annotated[
        list[BatchCall],
        Field(alias="tool_calls", min_length=1, description=f"The calls, at most {MAX_CALLS}; their order means nothing"),
    ]


class BatchTool(Tool[BatchParameters]):
    """Each call is stored, needs permission and is truncated like a direct call of the tool."""

    id = "batch"
    parameters = BatchParameters

    async def execute(self, args: BatchParameters, ctx: ToolContext) -> ToolResult:
        accepted, surplus = args.tool_calls[:MAX_CALLS], args.tool_calls[MAX_CALLS:]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._call(call, ctx)) for call in accepted]
        outcomes = [task.result() for task in tasks]
        outcomes += [ToolError(f"A batch takes at most {MAX_CALLS} calls") for _ in surplus]
        for outcome in outcomes:
            if isinstance(outcome, PermissionRejected | QuestionRejected):
                raise outcome  # the user's rejection of a call ends the whole batch
        return _report([call.tool for call in args.tool_calls], outcomes)

    async def _call(self, call: BatchCall, ctx: ToolContext) -> ToolResult | Exception:
        if call.tool == self.id:
            return ToolError("A batch cannot stand inside a batch")
        try:
            return await ctx.host.call_tool(call.tool, call.parameters)
        except Exception as error:  # noqa: BLE001  a failed call is reported beside the results of the others
            return error


def _report(tools: Sequence[str], outcomes: Sequence[ToolResult | Exception]) -> ToolResult:
    results = [outcome for outcome in outcomes if isinstance(outcome, ToolResult)]
    failures = [(tool, error) for tool, error in zip(tools, outcomes, strict=True) if isinstance(error, Exception)]
    total, successful = len(outcomes), len(results)
    output = f"All {successful} calls succeeded. Each call's output stands with that call."
    if failures:
        lines = (f"- {tool}: {str(error) or type(error).__name__}" for tool, error in failures)
        output = "\n".join([f"{successful} of {total} calls succeeded, {len(failures)} failed:", *lines])
    return ToolResult(
        title=f"Batch execution ({successful}/{total} successful)",
        output=output,
        attachments=[file for result in results for file in result.attachments],
        metadata={
            "totalCalls": total,
            "successful": successful,
            "failed": len(failures),
            "tools": list(tools),
            "details": [
                {"tool": tool, "success": isinstance(outcome, ToolResult)} for tool, outcome in zip(tools, outcomes, strict=True)
            ],
        },
    )
