"""Resolves the paths that a model names, and asks permission for those outside the project."""

import os
from pathlib import Path

from app.permission.boundary import Boundary
from app.permission.wildcard import is_plain
from app.tool.base import ToolContext, ToolError, ToolPermission


def locate(ctx: ToolContext, name: str) -> Path:
    """The absolute path with symlinks resolved, so that the checked file is the changed file. Names are relative to the session's
    directory. A path inside the project starts with the project's directory as configured, even if that contains a symlink.
    """
    if "\0" in name:
        raise ToolError(f"A file path cannot contain a NUL character: {name!r}")
    real = Path(_boundary(ctx).resolve(name))
    for base in _bases(ctx):
        real_base = Path(os.path.realpath(base))
        if real.is_relative_to(real_base):
            return base / real.relative_to(real_base)
    return real


def root_of(ctx: ToolContext, path: Path) -> Path:
    """Beneath which directory `path`, which `locate` returned, is opened (app.tool.files.beneath)."""
    return next((base for base in _bases(ctx) if path.is_relative_to(base)), Path("/"))


def _bases(ctx: ToolContext) -> list[Path]:
    """From the outermost on: what lies within the checkout can be replaced by a link, as by a command that runs meanwhile."""
    is_inside = ctx.worktree != Path("/") and ctx.directory.is_relative_to(ctx.worktree)
    return [ctx.worktree, ctx.directory] if is_inside else [ctx.directory, ctx.worktree]


def require_in_place(ctx: ToolContext, *paths: Path) -> None:
    """Raises ToolError if a symbolic link leads one of `paths`, which `locate` returned, to another file by now: other calls run
    while the user is asked."""
    for path in paths:
        if locate(ctx, str(path)) != path:
            raise ToolError(f"A symbolic link was put into the way to {path} while permission was asked. Nothing was done.")


def relative_name(ctx: ToolContext, path: Path) -> str:
    """The path in titles and permission patterns: relative to the worktree, empty for the worktree itself."""
    name = os.path.relpath(path, ctx.worktree)
    return "" if name == os.curdir else name


async def ask_if_outside(ctx: ToolContext, path: Path, *, is_directory: bool = False) -> None:
    """Asks `external_directory` for a path outside the project: for its folder, but for what lies in `/`, which is asked for
    alone. `is_directory`: the path itself is the directory to open."""
    if ctx.bypass_directory_check or _boundary(ctx).contains(path):
        return
    parent = path if is_directory else path.parent
    asked = str(path if not is_directory and parent == Path("/") else parent / "*")
    always = [asked] if is_plain(str(parent)) else []
    await ctx.host.require_permission(
        ToolPermission("external_directory", [asked], always, {"filepath": str(path), "parentDir": str(parent)})
    )


def _boundary(ctx: ToolContext) -> Boundary:
    return Boundary(ctx.directory, ctx.worktree)
