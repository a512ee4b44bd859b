"""Worktrees as git keeps them: a folder in the repository's `worktrees`, and a `.git` file in the worktree that names the folder.

Commands can write both, so each is believed only if it names the other. Only what was made is removed, never through a link.
"""

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.project.sandbox.git import Git, GitResult, git_of
from app.project.sandbox.git_repository import GitRepository, repository_of
from app.util.beneath import folder_of, names_in, status_of
from app.util.project_files import read_small

BRANCH_PREFIX = "opencode/"
_CHECKOUT_SECONDS = 600


def branch_of(directory: Path) -> str:
    return BRANCH_PREFIX + directory.name


async def is_free(git: Git, directory: Path) -> bool:
    """Whether a worktree, and the branch of its name, can be made."""
    taken = await git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch_of(directory)}")
    return not taken.ok and not os.path.lexists(directory)  # noqa: ASYNC240


async def add(git: Git, directory: Path) -> GitResult:
    """Makes a branch at HEAD, in an existing empty directory; `reset` brings the files."""
    made = git.with_access_to(directory)
    return await made.run("worktree", "add", "--no-checkout", "-b", branch_of(directory), directory, "HEAD")


def of_worktree(git: Git, worktree: Path) -> Git | None:
    """Git for a worktree of the repository of `git`. None if it is no worktree, or not any more."""
    found = repository_of(worktree)
    if found is None or git.repository is None or found.common_dir != git.repository.common_dir or not found.is_linked:
        return None
    with suppress(OSError):
        return git_of(git.sandbox, found, git.walls)
    return None


async def reset(git: Git, commit: str = "HEAD") -> GitResult:
    env = await git.without_filters()
    return await git.run("reset", "--hard", "--no-recurse-submodules", commit, env=env, timeout=_CHECKOUT_SECONDS)


async def clean(git: Git) -> GitResult:
    """Removes ignored files too, and nested repositories."""
    return await git.run("clean", "-ffdx", "--quiet", timeout=_CHECKOUT_SECONDS)


def forget(git: Git, worktree: Path) -> None:
    """Removes a worktree, whose files may be gone, from the repository. Raises OSError, also if a link is in the way, and for a
    worktree that `git worktree lock` keeps."""
    assert git.repository is not None
    store = git.repository.common_dir
    with suppress(FileNotFoundError):
        for name in names_in(store / "worktrees", store):
            entry = store / "worktrees" / name
            if entry.is_symlink() or read_small(entry / "gitdir", store).strip() != str(worktree / ".git"):
                continue
            if status_of(entry / "locked", store) is not None:
                raise OSError(errno.EBUSY, "it is locked (see `git worktree unlock`)", str(worktree))
            with folder_of(entry, store) as entries:
                shutil.rmtree(name, dir_fd=entries)


async def remove_branch(git: Git, worktree: Path) -> None:
    """Removes the branch that the worktree was made with. Works in the repository: the worktree of `git` may be the removed
    one."""
    assert git.repository is not None
    store = git.repository.common_dir
    holder = git.also[0] if git.also else git.directory
    bare = replace(git, directory=holder, also=(), repository=GitRepository(holder.real, store, store))
    await bare.run("branch", "-D", branch_of(worktree))
