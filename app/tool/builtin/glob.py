import asyncio
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tool import boundary, descriptions
from app.tool.base import PermissionAsk, Tool, ToolContext, ToolResult
from app.tool.search import ripgrep
from app.tool.search.search_place import SearchPlace, newest_first, notes

LIMIT = 100


class GlobParameters(Wire):
    pattern: Annotated[str, Field(description="Glob that the files' paths must match, such as **/*.py")]
    path: Annotated[str | None, Field(description="Directory to search; the session's own directory if absent")] = None


class GlobTool(Tool[GlobParameters]):
    id = "glob"
    parameters = GlobParameters

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: GlobParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.ask(PermissionAsk(self.id, [args.pattern], ["*"], args.model_dump(exclude_none=True)))
        place = await SearchPlace.enter(ctx, args.path)
        listing = await ripgrep.list_files(place.directory(), [args.pattern], LIMIT, place.contains)
        paths = await asyncio.to_thread(newest_first, listing.paths)
        return ToolResult(
            title=boundary.relative_name(ctx, place.path),
            output=_render(paths, listing),
            metadata={"count": len(paths), "truncated": listing.truncated},
        )


def _render(paths: list[Path], listing: ripgrep.Listing) -> str:
    lines = [ripgrep.shown(path) for path in paths] or ["No files found"]
    more = f"Only the first {LIMIT} files are listed. Narrow the pattern or the path." if listing.truncated else None
    return "\n".join(lines + notes(more, left_out=listing.left_out, incomplete=listing.incomplete))
