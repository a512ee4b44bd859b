"""What glob, grep and list share: where a search may go and what is said of its limits."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.permission.boundary import Boundary
from app.tool import boundary
from app.tool.base import ToolContext, ToolError


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """`path` is where the search starts; leave was given for it and for the project, and symbolic links lead no further."""

    path: Path
    _project: Boundary
    _named: Path

    @classmethod
    async def enter(cls, ctx: ToolContext, name: str | None) -> "SearchPlace":
        """Raises ToolError when there is no such path; asks `external_directory` when it lies outside the project."""
        path = boundary.locate(ctx, name or ".")
        await boundary.ask_if_outside(ctx, path, is_directory=path.is_dir())
        if not path.exists():
            raise ToolError(f"There is no such path: {path}")
        project = Boundary(ctx.directory, ctx.worktree)
        return cls(path, project, Path(project.resolve(path)))

    def contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return self._project.inside(real) or Path(real).is_relative_to(self._named)

    def folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def directory(self) -> Path:
        if not self.path.is_dir():
            raise ToolError(f"This is not a directory: {self.path}")
        return self.path


def newest_first(paths: Sequence[Path]) -> list[Path]:
    """Files that are gone meanwhile stand last."""
    return sorted(paths, key=_modified, reverse=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def notes(more: str | None, *, left_out: int, incomplete: bool) -> list[str]:
    """Lines to put under a result, each after an empty one."""
    said = [
        more,
        f"{left_out} more found through symbolic links that lead outside the project are not shown." if left_out else None,
        "Some paths could not be read and were skipped." if incomplete else None,
    ]
    return [line for note in said if note for line in ("", f"({note})")]
