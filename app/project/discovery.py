"""Finds the project that a directory belongs to."""

import asyncio
import logging
from dataclasses import field
from pathlib import Path
from typing import Literal

from app.util.dataclass import dataclass
from app.util.git import git
from app.util.git_obstacles import reference_obstacle
from app.util.project_files import FileRefused, is_below, read_bytes, warn_once

log = logging.getLogger(__name__)

NO_PROJECT = "global"
_ROOT = Path("/")


@dataclass(frozen=True)
class ProjectInfo:
    """`id`: the smallest root commit of the repository, `global` outside git and before the first commit.
    `worktree`: the repository's main checkout; `checkout`: the checkout that contains the directory. Both are `/` outside git.
    `git_dir`: the checkout's git directory, None outside git.
    """

    id: str
    worktree: Path
    checkout: Path
    vcs: Literal["git"] | None
    git_dir: Path | None = field(default=None, compare=False)


OUTSIDE_GIT = ProjectInfo(NO_PROJECT, _ROOT, _ROOT, None)


async def discover(directory: Path) -> ProjectInfo:
    """The project of a directory. Never raises: a missing directory, or any directory on a machine without git, is outside
    git."""
    places = await _places(directory)
    if places is None or not await asyncio.to_thread(places.is_of_checkout):
        return OUTSIDE_GIT
    if refused := await asyncio.to_thread(reference_obstacle, places.common_dir):
        warn_once(log, f"{directory} counts as outside git: {refused}")
        return OUTSIDE_GIT
    roots = await _root_commits(directory, "--all")
    # Some CI checkouts have only a detached HEAD that no ref reaches.
    roots = roots or await _root_commits(directory, "HEAD")
    return ProjectInfo(min(roots, default=NO_PROJECT), places.main_checkout(), places.checkout, "git", places.git_dir)


async def branch(directory: Path) -> str | None:
    """The current branch, also before its first commit; None if HEAD is detached or the directory is outside git."""
    result = await git(["symbolic-ref", "--quiet", "--short", "HEAD"], directory)
    return result.text if result.ok else None


@dataclass(frozen=True)
class _CheckoutPaths:
    checkout: Path
    git_dir: Path
    common_dir: Path

    def is_of_checkout(self) -> bool:
        """Whether the checkout's own `.git` leads to the git directory. `core.worktree` can name any directory, and is set by
        whoever may write the repository's configuration, such as a command in the sandbox."""
        entry = self.checkout / ".git"
        if entry.is_file():
            try:
                text = read_bytes(entry, lambda real: is_below(real, str(self.checkout)))
            except FileRefused:
                return False
            named = (text or b"").decode("utf-8", "surrogateescape").partition("gitdir: ")[2].strip()
            entry = self.checkout / named
        return entry.resolve() == self.git_dir.resolve()

    def main_checkout(self) -> Path:
        """The parent of the common git directory, except where that is elsewhere: submodules, `--separate-git-dir`."""
        is_linked_worktree = self.git_dir != self.common_dir
        if is_linked_worktree or self.common_dir.name == ".git":
            return self.common_dir.parent
        return self.checkout


async def _places(directory: Path) -> _CheckoutPaths | None:
    asked = ["--show-toplevel", "--absolute-git-dir", "--git-common-dir"]
    result = await git(["rev-parse", *asked], directory)
    if not result.ok:
        return None
    checkout, git_dir, common_dir = (Path(line) for line in result.stdout.decode(errors="surrogateescape").splitlines())
    return _CheckoutPaths(checkout, git_dir, (directory / common_dir).resolve())


async def _root_commits(directory: Path, revisions: str) -> list[str]:
    result = await git(["rev-list", "--max-parents=0", revisions], directory, timeout=300)
    return result.text.split() if result.ok else []
