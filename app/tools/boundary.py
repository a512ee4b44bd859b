"""Resolves the paths that a model names, and asks permission for those outside the project."""

import os
from pathlib import Path

from app.permissions.paths import Boundary
from app.permissions.wildcard import is_plain
from app.tools.base import ToolContext, ToolError, ToolPermission
from app.util.project_files import MAX_PATH, DirectoryReplaced, HeldDirectory


def locate(ctx: ToolContext, name: str) -> Path:
    """The absolute path with symlinks resolved, so that the checked file is the changed file. Names are relative to the session's
    directory. A path inside the project starts with the project's directory as configured, even if that contains a symlink.
    Raises ToolError for what is another user's, and if the project is another directory by now."""
    if "\0" in name:
        raise ToolError(f"A file path cannot contain a NUL character: {name!r}")
    if len(name) > MAX_PATH:
        raise ToolError(f"A file path has at most {MAX_PATH} characters, this one has {len(name)}.")
    bases = _bases(ctx)
    real = Path(project_of(ctx).resolve(name))
    if not real.is_absolute():
        raise ToolError(f"The links of {name} cannot be followed.")
    for base in bases:
        if not base.is_in_place():
            raise ToolError(f"{base.path}: {DirectoryReplaced(base.path).strerror}. Nothing was done.")
    if not ctx.sandbox_workspace.walls.admits(str(real)):
        raise ToolError(f"{real} is outside the directories that this user may work in.")
    for base in bases:
        if real.is_relative_to(base.real):
            return base.path / real.relative_to(base.real)
    return real


def root_of(ctx: ToolContext, path: Path) -> HeldDirectory | Path:
    """The directory beneath which `path`, which `locate` returned, is opened (app.tools.text_file)."""
    return next((base for base in _bases(ctx) if path.is_relative_to(base.path)), Path("/"))


def _bases(ctx: ToolContext) -> tuple[HeldDirectory, ...]:
    """Begins with the outermost: a command that runs meanwhile can replace what lies within the checkout by a link."""
    try:
        *top, directory = ctx.sandbox_workspace.directories()
    except OSError as error:
        raise ToolError(f"{ctx.directory} cannot be used: {error.strerror}") from error
    is_inside = any(directory.path.is_relative_to(one.path) for one in top)
    return (*top, directory) if is_inside else (directory, *top)


def require_in_place(ctx: ToolContext, *paths: Path) -> None:
    """Raises ToolError if a symbolic link now leads one of `paths`, which `locate` returned, to another file: other calls run
    while the user is asked."""
    for path in paths:
        if locate(ctx, str(path)) != path:
            raise ToolError(f"A symbolic link was put into the way to {path} while permission was asked. Nothing was done.")


def relative_name(ctx: ToolContext, path: Path) -> str:
    """The path in titles and permission patterns: relative to the worktree, empty for the worktree itself."""
    name = os.path.relpath(path, ctx.worktree)
    return "" if name == os.curdir else name


async def ask_if_outside(ctx: ToolContext, path: Path, *, is_directory: bool = False) -> None:
    """Asks `external_directory` for the folder of a path outside the project; for a path directly in `/`, for that path alone.
    `is_directory`: the path itself is the directory to open."""
    if ctx.bypass_directory_check or project_of(ctx).contains(path):
        return
    parent = path if is_directory else path.parent
    asked = str(path if not is_directory and parent == Path("/") else parent / "*")
    always = [asked] if is_plain(str(parent)) else []
    await ctx.host.require_permission(
        ToolPermission("external_directory", [asked], always, {"filepath": str(path), "parentDir": str(parent)})
    )


def project_of(ctx: ToolContext) -> Boundary:
    return Boundary(ctx.directory, ctx.worktree, (base.real for base in _bases(ctx)))
