import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from app.permission.service import PermissionRejected
from app.question.service import QuestionRejected
from app.schema.base import Wire
from app.tool.base import Tool, ToolContext, ToolResult

MAX_CALLS = 25


class BatchCall(Wire):
    tool: Annotated[str, Field(description="Name of the tool")]
    parameters: Annotated[dict[str, Any], Field(description="Its arguments")]


class BatchParameters(Wire):
    tool_calls: Annotated[
        list[BatchCall],
        Field(alias="tool_calls", min_length=1, description=f"The calls, at most {MAX_CALLS}; their order means nothing"),
    ]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """`rejection`: the user rejected the call, which ends the whole batch."""

    tool: str
    result: ToolResult | None = None
    error: str | None = None
    rejection: Exception | None = None


class BatchTool(Tool[BatchParameters]):
    """Each call is stored, needs permission and is truncated like a direct call of the tool."""

    id = "batch"
    parameters = BatchParameters

    async def execute(self, args: BatchParameters, ctx: ToolContext) -> ToolResult:
        accepted, surplus = args.tool_calls[:MAX_CALLS], args.tool_calls[MAX_CALLS:]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._call(call, ctx)) for call in accepted]
        outcomes = [task.result() for task in tasks]
        outcomes += [BatchOutcome(call.tool, error=f"A batch takes at most {MAX_CALLS} calls") for call in surplus]
        for outcome in outcomes:
            if outcome.rejection:
                raise outcome.rejection
        return _report(outcomes)

    async def _call(self, call: BatchCall, ctx: ToolContext) -> BatchOutcome:
        if call.tool == self.id:
            return BatchOutcome(call.tool, error="A batch cannot stand inside a batch")
        try:
            return BatchOutcome(call.tool, result=await ctx.host.call_tool(call.tool, call.parameters))
        except (PermissionRejected, QuestionRejected) as error:
            return BatchOutcome(call.tool, error=str(error), rejection=error)
        except Exception as error:  # noqa: BLE001  a failed call is reported beside the results of the others
            return BatchOutcome(call.tool, error=str(error) or type(error).__name__)


def _report(outcomes: list[BatchOutcome]) -> ToolResult:
    total = len(outcomes)
    successful = sum(outcome.error is None for outcome in outcomes)
    return ToolResult(
        title=f"Batch execution ({successful}/{total} successful)",
        output=_summary(outcomes, successful),
        attachments=[file for outcome in outcomes if outcome.result for file in outcome.result.attachments],
        metadata={
            "totalCalls": total,
            "successful": successful,
            "failed": total - successful,
            "tools": [outcome.tool for outcome in outcomes],
            "details": [{"tool": outcome.tool, "success": outcome.error is None} for outcome in outcomes],
        },
    )


def _summary(outcomes: list[BatchOutcome], successful: int) -> str:
    failures = [f"- {outcome.tool}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    if not failures:
        return f"All {successful} calls succeeded. Each call's output stands with that call."
    return "\n".join([f"{successful} of {len(outcomes)} calls succeeded, {len(failures)} failed:", *failures])
