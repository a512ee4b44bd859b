"""The directory that a request works in, and its project."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """`worktree` is the root of this checkout, `/` outside git."""

    directory: str
    project_id: str
    worktree: str
    is_git: bool
