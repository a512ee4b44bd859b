"""Whether a path is inside the project, with symlinks resolved."""

import os
from collections.abc import Iterable
from pathlib import Path


class Boundary:
    """The session's directory and its worktree; a worktree of `/` (no git) adds nothing. `roots`: where both were when they were
    opened, without symlinks: a link that stands there by now leads out. None: where they are now."""

    def __init__(self, directory: Path, worktree: Path, roots: Iterable[Path] = ()) -> None:
        self.directory = directory
        self.worktree = worktree
        self._roots = list(dict.fromkeys(map(str, roots))) or self._as_they_are()

    def _as_they_are(self) -> list[str]:
        places = [self.directory] if self.worktree == Path("/") else [self.directory, self.worktree]
        return list(map(os.path.realpath, places))

    def contains(self, path: Path | str) -> bool:
        """Relative paths start at the directory. For a path that does not exist, its existing parents decide."""
        real = self.resolve(path)
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots)

    def is_root(self, path: str) -> bool:
        return path in {*self._roots, str(self.directory), str(self.worktree)}

    def resolve(self, path: Path | str) -> str:
        return os.path.realpath(os.path.join(self.directory, path))  # noqa: PTH118 (Path would drop a trailing `..` of a link)
