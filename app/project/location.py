"""The directory that a request works in, and its project."""

import os
from dataclasses import dataclass, field
from functools import lru_cache

from app.project.sandbox.git import Git


@dataclass(frozen=True, slots=True)
class Location:
    """`worktree` is the root of this checkout, `/` outside git. `git` runs there, None outside git, and where the directory is
    not on this machine. `real`: the directory without symlinks, where that is known. `no_undo`: why changes of files cannot be
    reverted here, None where they can."""

    directory: str
    project_id: str
    worktree: str
    is_git: bool
    git: Git | None = field(default=None, repr=False, compare=False)
    real: str = field(default="", repr=False, compare=False)
    no_undo: str | None = field(default=None, repr=False, compare=False)

    @property
    def path(self) -> str:
        """The directory, relative to the worktree; empty: the worktree itself."""
        return _path(self.directory, self.worktree)

    @property
    def files_root(self) -> str:
        """What the names of changed files are relative to."""
        return self.worktree if self.is_git else self.real or self.directory


@lru_cache
def _path(directory: str, worktree: str) -> str:
    path = os.path.relpath(directory, worktree)
    return "" if path == os.curdir else path
