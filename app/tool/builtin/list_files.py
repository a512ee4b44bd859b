from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.sandbox.sandbox import Sandbox
from app.schema.base import Wire
from app.tool import boundary, descriptions
from app.tool.base import Tool, ToolContext, ToolPermission, ToolResult
from app.tool.search import ripgrep
from app.tool.search.search_scope import SearchScope, notes

LIMIT = 100
IGNORED = (  # noqa: SIM905
    "node_modules/ __pycache__/ .git/ dist/ build/ target/ vendor/ bin/ obj/ .idea/ .vscode/ .zig-cache/ zig-out "
    ".coverage coverage/ tmp/ temp/ .cache/ cache/ logs/ .venv/ venv/ env/"
).split()
"""Directories and files at the top level that are left out."""


class ListParameters(Wire):
    path: Annotated[str | None, Field(description="Directory to list; the session's own directory if absent")] = None
    ignore: Annotated[list[str] | None, Field(description="Globs of files to leave out, besides the usual ones")] = None


class ListTool(Tool[ListParameters]):
    id = "list"
    parameters = ListParameters

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: ListParameters, ctx: ToolContext) -> ToolResult:
        scope = await SearchScope.enter(ctx, args.path, self._sandbox)
        place = scope.directory()
        directory = place.folder
        await ctx.host.require_permission(ToolPermission(self.id, [str(directory)], ["*"], {"path": str(directory)}))
        globs = [f"!{name}*" for name in IGNORED] + [f"!{glob}" for glob in args.ignore or []]
        listing = await ripgrep.list_files(place, globs, LIMIT, scope.contains, ordered=True)
        return ToolResult(
            title=boundary.relative_name(ctx, directory),
            output=_render(directory, listing),
            metadata={"count": len(listing.paths), "truncated": listing.truncated},
        )


@dataclass(slots=True)
class Folder:
    folders: "dict[str, Folder]" = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


def _render(directory: Path, listing: ripgrep.Listing) -> str:
    root = _tree(ripgrep.json_text(path.relative_to(directory)) for path in listing.paths)
    more = f"Only the first {LIMIT} files are listed. List a directory below for more." if listing.truncated else None
    lines = [f"{ripgrep.json_text(directory)}/", *_lines(root, depth=1)]
    return "\n".join(lines + notes(more, left_out=listing.left_out, incomplete=listing.incomplete))


def _tree(paths: Iterable[str]) -> Folder:
    root = Folder()
    for path in paths:
        *parents, name = path.split("/")
        here = root
        for parent in parents:
            here = here.folders.setdefault(parent, Folder())
        here.files.append(name)
    return root


def _lines(folder: Folder, depth: int) -> list[str]:
    """Directories first, then files, each sorted by name."""
    indent = "  " * depth
    below = [line for name in sorted(folder.folders) for line in (f"{indent}{name}/", *_lines(folder.folders[name], depth + 1))]
    return below + [f"{indent}{name}" for name in sorted(folder.files)]
