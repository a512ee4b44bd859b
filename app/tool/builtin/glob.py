import asyncio
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.sandbox.sandbox import Sandbox
from app.schema.base import Wire
from app.tool import boundary, descriptions
from app.tool.base import Tool, ToolContext, ToolPermission, ToolResult
from app.tool.search import ripgrep
from app.tool.search.search_scope import SearchScope, newest_first, notes

LIMIT = 100


class GlobParameters(Wire):
    pattern: Annotated[str, Field(description="Glob that the files' paths must match, such as **/*.py")]
    path: Annotated[str | None, Field(description="Directory to search; the session's own directory if absent")] = None


class GlobTool(Tool[GlobParameters]):
    id = "glob"
    parameters = GlobParameters

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: GlobParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, [args.pattern], ["*"], args.model_dump(exclude_none=True)))
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        listing = await ripgrep.list_files(scope.directory(), [args.pattern], LIMIT, scope.contains)
        paths = await asyncio.to_thread(newest_first, listing.paths)
        return ToolResult(
            title=boundary.relative_name(ctx, scope.path),
            output=_render(paths, listing),
            metadata={"count": len(paths), "truncated": listing.truncated},
        )


def _render(paths: list[Path], listing: ripgrep.Listing) -> str:
    lines = [ripgrep.json_text(path) for path in paths] or ["No files found"]
    more = f"Only the first {LIMIT} files are listed. Narrow the pattern or the path." if listing.truncated else None
    return "\n".join(lines + notes(more, left_out=listing.left_out, incomplete=listing.incomplete))
