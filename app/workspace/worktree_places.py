"""Where the worktrees are that this server makes: in the data directory, one folder a project.

Beside each stands, out of the reach of the commands that work in it, the checkout that it was made of: who may work there may
work in the worktree.
"""

import os
import shutil
from pathlib import Path


class WorktreePlaces:
    def __init__(self, data_dir: Path) -> None:
        self._top = os.path.realpath(data_dir / "worktree")
        self._origins = Path(self._top) / ".origins"

    def of_project(self, project_id: str) -> Path:
        return Path(self._top) / project_id

    def origin(self, real: str) -> str | None:
        """The checkout that the worktree was made of which holds a path without symlinks; None for any other path."""
        if not real.startswith(self._top + "/"):
            return None
        project_id, _, below = real[len(self._top) + 1 :].partition("/")
        try:
            return self._file(project_id, below.partition("/")[0]).read_text("utf-8", "surrogateescape")
        except (OSError, ValueError):
            return None

    def add(self, worktree: Path, origin: str) -> None:
        file = self._file(worktree.parent.name, worktree.name)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(origin, "utf-8", "surrogateescape")

    def forget(self, worktree: Path) -> None:
        """It can be opened no more."""
        self._file(worktree.parent.name, worktree.name).unlink(missing_ok=True)

    def remove(self, worktree: Path) -> None:
        """With all that is left in it."""
        self.forget(worktree)
        shutil.rmtree(worktree, ignore_errors=True)

    def _file(self, project_id: str, name: str) -> Path:
        return self._origins / project_id / name
