"""Shared by glob, grep and list: the paths that a search may return, and the notes on its limits."""

import asyncio
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.permission.boundary import Boundary
from app.sandbox.sandbox import Sandbox
from app.tool import boundary
from app.tool.base import ToolContext, ToolError
from app.tool.files import text_file
from app.tool.files.beneath import status_of
from app.tool.search.ripgrep import SearchPlace
from app.util.project_files import HeldDirectory


@dataclass(frozen=True, slots=True)
class SearchScope:
    """`path` is where the search starts. It and the project are permitted; links that lead elsewhere are left out."""

    path: Path
    place: SearchPlace
    _project: Boundary
    _named: Path

    @classmethod
    async def enter(cls, ctx: ToolContext, name: str | None, sandbox: Sandbox) -> "SearchScope":
        """Raises ToolError if the path does not exist. Asks `external_directory` if it is outside the project."""
        path = boundary.locate(ctx, name or ".")
        is_directory = await asyncio.to_thread(_is_directory, ctx, path)
        await boundary.ask_if_outside(ctx, path, is_directory=is_directory is True)
        if is_directory is None:
            raise ToolError(f"There is no such path: {path}")
        boundary.require_in_place(ctx, path)
        place = _place(ctx, path if is_directory else path.parent, sandbox)
        return cls(path, place, boundary.project_of(ctx), place.real if is_directory else place.real / path.name)

    def contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        is_permitted = self._project.contains(real) or Path(real).is_relative_to(self._named)
        return is_permitted and self.place.walls.admits(real)

    @property
    def name(self) -> str:
        """Of the file that is searched, in the place's folder; `.` for the folder itself."""
        return "." if self.path == self.place.folder else self.path.name

    def directory(self) -> SearchPlace:
        if self.path != self.place.folder:
            raise ToolError(f"This is not a directory: {self.path}")
        return self.place


def _is_directory(ctx: ToolContext, path: Path) -> bool | None:
    """None if there is nothing. Raises ToolError."""
    try:
        found = status_of(path, boundary.root_of(ctx, path))
    except OSError as error:
        raise text_file.failure("search", path, error) from error
    return stat.S_ISDIR(found.st_mode) if found else None


def _place(ctx: ToolContext, folder: Path, sandbox: Sandbox) -> SearchPlace:
    """Of a folder that was permitted. Raises ToolError if another one stands there by now."""
    workspace, root = ctx.sandbox_workspace, boundary.root_of(ctx, folder)
    shown = workspace.directories()
    if isinstance(root, HeldDirectory):
        return SearchPlace(folder, root, shown, sandbox, workspace.walls)
    try:
        held = HeldDirectory(folder)
    except OSError as error:
        raise text_file.failure("search", folder, error) from error
    if held.real != folder:
        raise ToolError(f"A symbolic link was put into the way to {folder} while permission was asked. Nothing was done.")
    return SearchPlace(folder, held, (*shown, held), sandbox, workspace.walls)


def newest_first(paths: Sequence[Path]) -> list[Path]:
    """Files that no longer exist come last."""
    return sorted(paths, key=_modified, reverse=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def notes(more: str | None, *, left_out: int, incomplete: bool) -> list[str]:
    """Notes for the end of a result, each after an empty line."""
    candidates = [
        more,
        f"{left_out} more found through symbolic links that lead outside the project are not shown." if left_out else None,
        "Some paths could not be read and were skipped." if incomplete else None,
    ]
    return [line for note in candidates if note for line in ("", f"({note})")]
