"""Where a file that the model names really is, what it is called, and leave to touch it when it lies outside the project."""

import os
from pathlib import Path

from app.permission.boundary import Boundary
from app.tool.base import PermissionAsk, ToolContext, ToolError


def locate(ctx: ToolContext, name: str) -> Path:
    """The absolute path with every symlink followed, so that what is checked is what is touched. Relative names start at the
    session's directory; a file inside the project keeps the project's own spelling, even where that goes through a symlink.
    """
    if "\0" in name:
        raise ToolError(f"A file path cannot contain a NUL character: {name!r}")
    real = Path(_boundary(ctx).resolve(name))
    for base in (ctx.directory, ctx.worktree):
        real_base = Path(os.path.realpath(base))
        if real.is_relative_to(real_base):
            return base / real.relative_to(real_base)
    return real


def require_in_place(ctx: ToolContext, *paths: Path) -> None:
    """`paths` come from locate. Asking takes as long as a person takes, and other calls go on meanwhile. Raises ToolError when a
    symbolic link now leads one elsewhere than was checked."""
    for path in paths:
        if locate(ctx, str(path)) != path:
            raise ToolError(f"A symbolic link was put into the way to {path} while permission was asked. Nothing was done.")


def relative_name(ctx: ToolContext, path: Path) -> str:
    """The path as titles and permission patterns carry it: relative to the worktree, whose own name is empty."""
    name = os.path.relpath(path, ctx.worktree)
    return "" if name == os.curdir else name


async def ask_if_outside(ctx: ToolContext, path: Path, *, is_directory: bool = False) -> None:
    """Asks `external_directory` for a path outside the project; `is_directory` when the path itself is the folder to open."""
    if ctx.bypass_directory_check or _boundary(ctx).inside(path):
        return
    parent = path if is_directory else path.parent
    pattern = str(parent / "*")
    await ctx.host.ask(
        PermissionAsk("external_directory", [pattern], [pattern], {"filepath": str(path), "parentDir": str(parent)})
    )


def _boundary(ctx: ToolContext) -> Boundary:
    return Boundary(ctx.directory, ctx.worktree)
