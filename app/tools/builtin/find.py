"""Tools that look for something: list, glob, grep, and lsp, which asks language servers."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from app.project.sandbox.sandbox import Sandbox
from app.schema.base import Wire
from app.tools import search, text_file
from app.tools.base import P, Tool, ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name, require_in_place, root_of
from app.tools.search import Match, SearchResult, SearchScope, newest_first
from app.util.bounds import plain_json

LIMIT = 100
IGNORED = (  # noqa: SIM905
    "node_modules/ __pycache__/ .git/ dist/ build/ target/ vendor/ bin/ obj/ .idea/ .vscode/ .zig-cache/ zig-out "
    ".coverage coverage/ tmp/ temp/ .cache/ cache/ logs/ .venv/ venv/ env/"
).split()
"""Directories and files at the top level that are left out."""

MAX_SCANNED_MATCHES = 10_000
"""The number of matches that are read; the newest of them are shown."""
LINE_CHARACTERS = 2000


class _Search(Tool[P]):
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox


class ListParameters(Wire):
    path: Annotated[str | None, Field(description="Directory to list; the session's own directory if absent")] = None
    ignore: Annotated[list[str] | None, Field(description="Globs of files to leave out, besides the usual ones")] = None


class ListTool(_Search[ListParameters]):
    id = "list"
    parameters = ListParameters

    async def execute(self, args: ListParameters, ctx: ToolContext) -> ToolResult:
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        place = scope.directory()
        directory = place.folder
        await ctx.host.require_permission(ToolPermission(self.id, [str(directory)], ["*"], {"path": str(directory)}))
        globs = [f"!{name}*" for name in IGNORED] + [f"!{glob}" for glob in args.ignore or []]
        listing = await search.list_files(place, globs, LIMIT, scope.contains, ordered=True)
        return ToolResult(
            title=relative_name(ctx, directory),
            output=_render(directory, listing),
            metadata={"count": len(listing.items), "truncated": listing.truncated},
        )


def _render(directory: Path, listing: SearchResult[Path]) -> str:
    names = [text_file.json_text(str(path.relative_to(directory))) for path in listing.items]
    more = f"Only the first {LIMIT} files are listed. List a directory below for more." if listing.truncated else None
    lines = [f"{text_file.json_text(str(directory))}/", *_tree(names)]
    return "\n".join(lines + listing.notes(more))


def _tree(names: Iterable[str]) -> Iterator[str]:
    """Directories first, then files, each sorted by name. Empty folders are not listed."""
    paths = ([*((0, folder) for folder in folders), (1, file)] for *folders, file in (name.split("/") for name in names))
    shown: list[tuple[int, str]] = []
    for path in sorted(paths):
        begin = next((at for at, (before, now) in enumerate(zip(shown, path, strict=False)) if before != now), len(shown))
        yield from (f"{'  ' * (at + 1)}{name}{'' if is_file else '/'}" for at, (is_file, name) in enumerate(path) if at >= begin)
        shown = path


class GlobParameters(Wire):
    pattern: Annotated[str, Field(description="Glob that the files' paths must match, such as **/*.py")]
    path: Annotated[str | None, Field(description="Directory to search; the session's own directory if absent")] = None


class GlobTool(_Search[GlobParameters]):
    id = "glob"
    parameters = GlobParameters

    async def execute(self, args: GlobParameters, ctx: ToolContext) -> ToolResult:
        await ctx.host.require_permission(ToolPermission(self.id, [args.pattern], ["*"], args.model_dump(exclude_none=True)))
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        listing = await search.list_files(scope.directory(), [args.pattern], LIMIT, scope.contains)
        paths = await asyncio.to_thread(newest_first, listing.items)
        lines = [text_file.json_text(str(path)) for path in paths] or ["No files found"]
        more = f"Only the first {LIMIT} files are listed. Narrow the pattern or the path." if listing.truncated else None
        return ToolResult(
            title=relative_name(ctx, scope.path),
            output="\n".join(lines + listing.notes(more)),
            metadata={"count": len(paths), "truncated": listing.truncated},
        )


class GrepParameters(Wire):
    pattern: Annotated[str, Field(description="Regular expression (Rust's syntax) to find in the lines of files")]
    path: Annotated[str | None, Field(description="Directory or file to search; the session's own directory if absent")] = None
    include: Annotated[str | None, Field(description="Glob that the files' paths must match, such as *.py or *.{ts,tsx}")] = None


class GrepTool(_Search[GrepParameters]):
    id = "grep"
    parameters = GrepParameters

    async def execute(self, args: GrepParameters, ctx: ToolContext) -> ToolResult:
        if not args.pattern:
            raise ToolError("The pattern is empty")
        await ctx.host.require_permission(ToolPermission(self.id, [args.pattern], ["*"], args.model_dump(exclude_none=True)))
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        matches = await search.grep(args.pattern, scope.place, scope.name, args.include, MAX_SCANNED_MATCHES, scope.contains)
        by_age = await asyncio.to_thread(_newest_first, matches.items)
        chosen = by_age[:LIMIT]
        return ToolResult(
            title=args.pattern,
            output=_render_matches(chosen, matches),
            metadata={"matches": len(chosen), "truncated": len(by_age) > LIMIT},
        )


def _newest_first(matches: list[Match]) -> list[Match]:
    by_file: dict[Path, list[Match]] = {}
    for match in matches:
        by_file.setdefault(match.path, []).append(match)
    return [match for path in newest_first(list(by_file)) for match in by_file[path]]


def _render_matches(chosen: list[Match], matches: SearchResult[Match]) -> str:
    lines = [f"Found {len(chosen)} matches"] if chosen else ["No files found"]
    for path, in_file in groupby(chosen, key=lambda match: match.path):
        lines += [f"{text_file.json_text(str(path))}:", *(f"  Line {match.line}: {_cut(match.text)}" for match in in_file), ""]
    if chosen:
        lines.pop()
    total = f"more than {MAX_SCANNED_MATCHES}" if matches.truncated else str(len(matches.items))
    more = f"Only {LIMIT} of {total} matches are shown, newest files first. Narrow the pattern, the path or `include`."
    return "\n".join(lines + matches.notes(more if len(matches.items) > LIMIT else None))


def _cut(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "..."


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
    line: Annotated[int, Field(ge=1, le=2**31, description="The line, counted from 1 as editors show it")]
    character: Annotated[int, Field(ge=1, le=2**31, description="The character in the line, counted from 1 as editors show it")]


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
        return ToolResult(title, _answers(found) or f"No results found for {args.operation}", {"result": found})


def _answers(found: list[Any]) -> str:
    """Raises ToolError for text that cannot be stored."""
    try:
        plain_json(found)
        return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() if found else ""
    except (ValueError, TypeError) as error:
        raise ToolError(f"The language server's answer cannot be used: {error}") from error
