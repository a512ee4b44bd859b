from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolResult


class InvalidParameters(Wire):
    tool: Annotated[str, Field(description="The tool that was called")]
    error: Annotated[str, Field(description="What was wrong with the call")]


class InvalidTool(Tool[InvalidParameters]):
    """Stands in for a call that no tool can execute, so that the model reads the error."""

    id = "invalid"
    parameters = InvalidParameters

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: InvalidParameters, ctx: ToolContext) -> ToolResult:
        return ToolResult(title="Invalid Tool", output=f"The arguments of the call to {args.tool} are invalid: {args.error}")
