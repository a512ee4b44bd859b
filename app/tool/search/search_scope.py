"""Shared by glob, grep and list: the paths that a search may return, and the notes on its limits."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.permission.boundary import Boundary
from app.tool import boundary
from app.tool.base import ToolContext, ToolError
from app.util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SearchScope:
    """`path` is where the search starts. It and the project are permitted; links that lead elsewhere are left out."""

    path: Path
    _project: Boundary
    _named: Path

    @classmethod
    async def enter(cls, ctx: ToolContext, name: str | None) -> "SearchScope":
        """Raises ToolError if the path does not exist. Asks `external_directory` if it is outside the project."""
        path = boundary.locate(ctx, name or ".")
        await boundary.ask_if_outside(ctx, path, is_directory=path.is_dir())
        if not path.exists():
            raise ToolError(f"There is no such path: {path}")
        project = Boundary(ctx.directory, ctx.worktree)
        return cls(path, project, Path(project.resolve(path)))

    def contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return self._project.contains(real) or Path(real).is_relative_to(self._named)

    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def directory(self) -> Path:
        if not self.path.is_dir():
            raise ToolError(f"This is not a directory: {self.path}")
        return self.path


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
