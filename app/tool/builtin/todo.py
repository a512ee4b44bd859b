import json
from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.schema.session import Todo
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolPermission, ToolResult


class TodoWriteParameters(Wire):
    todos: Annotated[list[Todo], Field(description="The whole list as it is to be from now on")]


class TodoReadParameters(Wire):
    pass


class TodoWriteTool(Tool[TodoWriteParameters]):
    id = "todowrite"
    parameters = TodoWriteParameters

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: TodoWriteParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        await ctx.host.set_todos(args.todos)
        return _report(args.todos)


class TodoReadTool(Tool[TodoReadParameters]):
    id = "todoread"
    parameters = TodoReadParameters

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: TodoReadParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, ["*"], ["*"]))
        return _report(await ctx.host.todos())


def _report(todos: list[Todo]) -> ToolResult:
    listed = [todo.wire() for todo in todos]
    unfinished = sum(todo.status != "completed" for todo in todos)
    return ToolResult(
        title=f"{unfinished} todos", output=json.dumps(listed, indent=2, ensure_ascii=False), metadata={"todos": listed}
    )
