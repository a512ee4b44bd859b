"""Whether a path is inside the project, with symlinks resolved."""

import os
from functools import cached_property
from pathlib import Path


class Boundary:
    """The session's directory and its worktree. A worktree of `/` (no git) adds nothing. A directory of the worktree that has
    become a link out of it, as by a command, counts no more."""

    def __init__(self, directory: Path, worktree: Path) -> None:
        self.directory = directory
        self.worktree = worktree

    @cached_property
    def _roots(self) -> list[str]:
        if self.worktree == Path("/"):
            return [os.path.realpath(self.directory)]
        top, real = os.path.realpath(self.worktree), os.path.realpath(self.directory)
        was_replaced = self.directory.is_relative_to(self.worktree) and not Path(real).is_relative_to(top)
        return [top] if was_replaced else list(dict.fromkeys([real, top]))

    def contains(self, path: Path | str) -> bool:
        """Relative paths start at the directory. For a path that does not exist, its existing parents decide."""
        real = self.resolve(path)
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots)

    def is_root(self, path: str) -> bool:
        return path in {*self._roots, str(self.directory), str(self.worktree)}

    def resolve(self, path: Path | str) -> str:
        return os.path.realpath(os.path.join(self.directory, path))  # noqa: PTH118 (Path would drop a trailing `..` of a link)
