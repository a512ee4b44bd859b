"""The directory that a request works in, and its project."""

import os
from dataclasses import dataclass, field
from functools import lru_cache

from app.project.sandbox.git import Git


@dataclass(frozen=True, slots=True)
class Location:
    """`worktree`: the root of this checkout, `/` outside git. `git` runs there; None outside git, and for a directory on another
    machine. `real`: the directory without symlinks, if known. `no_undo`: why changes of files cannot be reverted here, None if
    they can."""

    directory: str
    project_id: str
    worktree: str
    is_git: bool
    git: Git | None = field(default=None, repr=False, compare=False)
    real: str = field(default="", repr=False, compare=False)
    no_undo: str | None = field(default=None, repr=False, compare=False)

    @property
    def path(self) -> str:
        """The directory, relative to the worktree; empty for the worktree itself."""
        return _path(self.real or self.directory if self.is_git else self.directory, self.worktree)

    @property
    def files_root(self) -> str:
        """The directory that the names of changed files are relative to."""
        return self.worktree if self.is_git else self.real or self.directory


@lru_cache
def _path(directory: str, worktree: str) -> str:
    path = os.path.relpath(directory, worktree)
    return "" if path == os.curdir else path
