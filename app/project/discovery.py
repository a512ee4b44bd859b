"""Finds the project that a directory belongs to."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from app.project.sandbox.git import Git, git_of
from app.project.sandbox.git_repository import GitRepository, find_repository
from app.project.sandbox.sandbox import OFF, Sandbox
from app.project.sandbox.scope import NO_WALLS, Walls
from app.util.git_obstacles import obstacle, reference_obstacle
from app.util.project_files import warn_once

log = logging.getLogger(__name__)

NO_PROJECT = "global"
_ROOT = Path("/")
PLACES_SECONDS = 10.0
ROOTS_SECONDS = 60.0
"""For all commits of a very large repository."""


@dataclass(frozen=True)
class ProjectInfo:
    """`id`: the smallest root commit of the repository, `global` outside git and before the first commit.
    `worktree`: the repository's main checkout; `checkout`: the checkout that contains the directory. Both are `/` outside git.
    `git`: how git runs in the checkout, None outside git."""

    id: str
    worktree: Path
    checkout: Path
    vcs: Literal["git"] | None
    git: Git | None = field(default=None, compare=False)

    @property
    def git_dir(self) -> Path | None:
        """The checkout's git directory, None outside git."""
        return self.git.repository.git_dir if self.git and self.git.repository else None


OUTSIDE_GIT = ProjectInfo(NO_PROJECT, _ROOT, _ROOT, None)


async def discover(
    directory: Path, sandbox: Sandbox = OFF, admits: Callable[[str], bool] = lambda _: True, walls: Walls = NO_WALLS
) -> ProjectInfo:
    """The project of a directory. Never raises: a missing directory, or any directory on a machine without git, is outside git.
    `admits(path)`: may those who work in the directory also work at `path` (already resolved)?"""
    found = await _find(directory, sandbox, admits, walls)
    if found is None:
        return OUTSIDE_GIT
    git, repository = found
    if refused := await asyncio.to_thread(reference_obstacle, repository.common_dir):
        warn_once(log, f"{directory} counts as outside git: {refused}")
        return OUTSIDE_GIT
    roots = await _root_commits(git, "--all")
    # Some CI checkouts have only a detached HEAD that no ref reaches.
    roots = roots or await _root_commits(git, "HEAD")
    return ProjectInfo(min(roots, default=NO_PROJECT), repository.main_checkout, repository.checkout, "git", git)


async def checkout_of(directory: Path, sandbox: Sandbox, admits: Callable[[str], bool], walls: Walls) -> Path | None:
    """The checkout that contains the directory, as `discover` finds it; None outside git."""
    found = await _find(directory, sandbox, admits, walls)
    return found[1].checkout if found else None


async def branch(git: Git) -> str | None:
    """The current branch, also before its first commit; None if HEAD is detached."""
    result = await git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    return result.text if result.ok else None


async def _find(
    directory: Path, sandbox: Sandbox, admits: Callable[[str], bool], walls: Walls
) -> tuple[Git, GitRepository] | None:
    """Git must find the repository by itself, too. It refuses a repository of another user of the machine (`safe.directory`)."""
    found = await asyncio.to_thread(_look_for, directory, sandbox, admits, walls)
    if found is None:
        return None
    git, repository = found
    real = Path(os.path.realpath(directory))  # noqa: ASYNC240
    asked = ("rev-parse", "--show-toplevel", "--absolute-git-dir")
    result = await replace(git, is_given_repository=False).run(*asked, cwd=real, timeout=PLACES_SECONDS)
    places = result.stdout.decode(errors="surrogateescape").splitlines()
    return found if result.ok and [*map(Path, places)] == [repository.checkout, repository.git_dir] else None


def _look_for(directory: Path, sandbox: Sandbox, admits: Callable[[str], bool], walls: Walls) -> tuple[Git, GitRepository] | None:
    if not directory.is_dir():
        return None
    if refused := obstacle(directory):
        warn_once(log, f"{directory} counts as outside git: {refused}")
        return None
    repository = find_repository(directory, admits)
    try:
        return (git_of(sandbox, repository, walls), repository) if repository else None
    except OSError:
        return None


async def _root_commits(git: Git, revisions: str) -> list[str]:
    result = await git.run("rev-list", "--max-parents=0", revisions, timeout=ROOTS_SECONDS)
    return result.text.split() if result.ok else []
