import asyncio
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from app.schema.base import Wire
from app.tools import text_file
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name, require_in_place, root_of
from app.util.bounds import plain_json

Operation = Literal[
    "goToDefinition",
    "findReferences",
    "hover",
    "documentSymbol",
    "workspaceSymbol",
    "goToImplementation",
    "prepareCallHierarchy",
    "incomingCalls",
    "outgoingCalls",
]


class LspParameters(Wire):
    operation: Annotated[Operation, Field(description="What to ask")]
    file_path: Annotated[str, Field(description="The file; absolute, or relative to the project directory")]
    line: Annotated[int, Field(ge=1, lt=2**31, description="The line, counted from 1 as editors show it")]
    character: Annotated[int, Field(ge=1, lt=2**31, description="The character in the line, counted from 1 as editors show it")]


class LspTool(Tool[LspParameters]):
    id = "lsp"
    parameters = LspParameters

    async def execute(self, args: LspParameters, ctx: ToolContext) -> ToolResult:
        path = locate(ctx, args.file_path)
        await ask_if_outside(ctx, path)
        await ctx.host.require_permission(ToolPermission("lsp", ["*"], ["*"]))
        require_in_place(ctx, path)
        file = await asyncio.to_thread(text_file.read, path, root_of(ctx, path))
        if file is None:
            raise ToolError(f"File not found: {path}")
        text, place = text_file.json_text(file.text), (args.line - 1, args.character - 1)
        found = await ctx.host.ask_language_servers(args.operation, path, text, place)
        if found is None:
            raise ToolError("No LSP server available for this file type.")
        title = f"{args.operation} {relative_name(ctx, path)}:{args.line}:{args.character}"
        return ToolResult(title, _shown(found) or f"No results found for {args.operation}", {"result": found})


def _shown(found: list[Any]) -> str:
    """Raises ToolError for text that cannot be stored."""
    try:
        plain_json(found)
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() if found else ""
    except (ValueError, TypeError) as error:
        raise ToolError(f"The language server's answer cannot be used: {error}") from error
