"""Git's commands for worktrees. None runs a program that the repository's configuration names, none uses the network."""

import os
from pathlib import Path

from app.util.git import GitResult, git, without_filters

BRANCH_PREFIX = "opencode/"
_CHECKOUT_SECONDS = 600


async def listed(checkout: Path) -> list[Path]:
    """All of the repository, the main one first; also one whose files are gone."""
    found = (await git(["worktree", "list", "--porcelain", "-z"], checkout)).stdout
    lines = found.decode("utf-8", "surrogateescape").split("\0")
    return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]


async def is_free(checkout: Path, directory: Path) -> bool:
    """Whether a worktree can be made there, on the branch of its name."""
    taken = await git(["show-ref", "--verify", "--quiet", f"refs/heads/{branch_of(directory)}"], checkout)
    return not taken.ok and not os.path.lexists(directory)  # noqa: ASYNC240


def branch_of(directory: Path) -> str:
    return BRANCH_PREFIX + directory.name


async def add(checkout: Path, directory: Path) -> GitResult:
    """A new branch at HEAD; the files come by `reset`."""
    return await git(["worktree", "add", "--no-checkout", "-b", branch_of(directory), directory, "HEAD"], checkout)


async def reset(worktree: Path, commit: str = "HEAD") -> GitResult:
    env = await without_filters(worktree)
    return await git(["reset", "--hard", "--no-recurse-submodules", commit], worktree, env=env, timeout=_CHECKOUT_SECONDS)


async def clean(worktree: Path) -> GitResult:
    """Ignored files too, and repositories in it."""
    return await git(["clean", "-ffdx", "--quiet"], worktree, timeout=_CHECKOUT_SECONDS)


async def remove(checkout: Path, directory: Path) -> GitResult:
    """With its branch, if that is the one it was made with. Its files may be gone already. `checkout`: another one."""
    if os.path.lexists(directory):  # noqa: ASYNC240
        removed = await git(["worktree", "remove", "--force", directory], checkout, timeout=_CHECKOUT_SECONDS)
        if not removed.ok:
            return removed
    await git(["worktree", "prune"], checkout)
    return await git(["branch", "-D", branch_of(directory)], checkout)
