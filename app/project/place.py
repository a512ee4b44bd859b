"""Where a request works: a directory and the project it belongs to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """`worktree` is the top of this checkout, `/` outside git."""

    directory: str
    project_id: str
    worktree: str
    is_git: bool
