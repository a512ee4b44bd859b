import asyncio
from itertools import groupby
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.sandbox.sandbox import Sandbox
from app.schema.base import Wire
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult
from app.tool.search import ripgrep
from app.tool.search.ripgrep import Match, Matches
from app.tool.search.search_scope import SearchScope, newest_first, notes

LIMIT = 100
MAX_SCANNED_MATCHES = 10_000
"""The number of matches that are read; the newest of them are shown."""
LINE_CHARACTERS = 2000


class GrepParameters(Wire):
    pattern: Annotated[str, Field(description="Regular expression (Rust's syntax) to find in the lines of files")]
    path: Annotated[str | None, Field(description="Directory or file to search; the session's own directory if absent")] = None
    include: Annotated[str | None, Field(description="Glob that the files' paths must match, such as *.py or *.{ts,tsx}")] = None


class GrepTool(Tool[GrepParameters]):
    id = "grep"
    parameters = GrepParameters

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: GrepParameters, ctx: ToolContext) -> ToolResult:
        if not args.pattern:
            raise ToolError("The pattern is empty")
        await ctx.host.require_permission(ToolPermission(self.id, [args.pattern], ["*"], args.model_dump(exclude_none=True)))
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        matches = await ripgrep.grep(args.pattern, scope.place, scope.name, args.include, MAX_SCANNED_MATCHES, scope.contains)
        by_age = await asyncio.to_thread(_newest_first, matches.found)
        chosen = by_age[:LIMIT]
        return ToolResult(
            title=args.pattern,
            output=_render(chosen, matches),
            metadata={"matches": len(chosen), "truncated": len(by_age) > LIMIT},
        )


def _newest_first(matches: list[Match]) -> list[Match]:
    by_file: dict[Path, list[Match]] = {}
    for match in matches:
        by_file.setdefault(match.path, []).append(match)
    return [match for path in newest_first(list(by_file)) for match in by_file[path]]


def _render(chosen: list[Match], matches: Matches) -> str:
    lines = [f"Found {len(chosen)} matches"] if chosen else ["No files found"]
    for path, in_file in groupby(chosen, key=lambda match: match.path):
        lines += [f"{ripgrep.json_text(path)}:", *(f"  Line {match.line}: {_cut(match.text)}" for match in in_file), ""]
    if chosen:
        lines.pop()
    return "\n".join(lines + notes(_more(matches), left_out=matches.left_out, incomplete=matches.incomplete))


def _more(matches: Matches) -> str | None:
    if len(matches.found) <= LIMIT:
        return None
    total = f"more than {MAX_SCANNED_MATCHES}" if matches.truncated else str(len(matches.found))
    return f"Only {LIMIT} of {total} matches are shown, newest files first. Narrow the pattern, the path or `include`."


def _cut(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "..."
