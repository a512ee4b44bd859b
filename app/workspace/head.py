"""The checked-out branch of a directory, read again only after git has changed the files that define it."""

import asyncio
import logging

from app.config.watch import ConfigWatch, changed
from app.project.discovery import branch
from app.sandbox.git import Git
from app.util.project_files import is_below, read_bytes, warn_once

log = logging.getLogger(__name__)

_KEPT_ELSEWHERE = ".invalid"
"""The branch name in `HEAD` if git stores references as reftables."""


class Head:
    """Read in the checkout's git directory, which in a linked worktree is not the repository's."""

    def __init__(self, git: Git) -> None:
        assert git.repository is not None
        self._git = git
        git_dir = git.repository.git_dir
        self._file = git_dir / "HEAD"
        self._top = str(git_dir)
        self._tables = git_dir / "reftable" / "tables.list"
        self._seen: ConfigWatch | None = None
        self._looking = asyncio.Lock()
        self.branch = ""
        """As of the last `refresh`; empty if HEAD is detached."""

    async def refresh(self) -> bool:
        """Whether the branch has changed since the last call. Costs two stat calls if nothing changed."""
        async with self._looking:
            if self._seen is not None and not changed(self._seen.stamps):
                return False
            self._seen = ConfigWatch()
            self._seen.exists(self._file)
            self._seen.exists(self._tables)
            before, self.branch = self.branch, await self._read()
            return self.branch != before

    async def _read(self) -> str:
        try:
            text = await asyncio.to_thread(read_bytes, self._file, lambda real: is_below(real, self._top))
        except OSError as error:
            warn_once(log, f"the branch of {self._git.directory.path} is not known: {error}")
            return ""
        name = _branch_in((text or b"").decode("utf-8", "replace"))
        return name if name != _KEPT_ELSEWHERE else await branch(self._git) or ""


def _branch_in(head: str) -> str:
    """Of the text of the file: `ref: refs/heads/main`, or the commit's hash when it is detached."""
    _, is_reference, name = head.strip().partition("ref: ")
    return name.removeprefix("refs/heads/") if is_reference else ""
