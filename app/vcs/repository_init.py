"""Makes a directory a git repository."""

import os

from app.runs.directories import BusyDirectories, Disposal
from app.sandbox.git import Git
from app.sandbox.sandbox import Sandbox
from app.util.project_files import HeldDirectory
from app.vcs.errors import GitFailed
from app.workspace.workspace import Workspace


class RepositoryInit:
    def __init__(self, busy: BusyDirectories, disposal: Disposal, sandbox: Sandbox) -> None:
        self._busy = busy
        self._disposal = disposal
        self._sandbox = sandbox

    async def make(self, workspace: Workspace) -> None:
        """One that is in no repository is in one from now on: it is closed on all servers, to be opened anew. Raises
        DirectoryBusy, GitFailed."""
        if workspace.location.is_git:
            return
        await self._busy.require_idle(workspace.location.directory)
        await self._init(workspace.directories[-1])
        await self._disposal.directory(workspace.location.directory)

    async def _init(self, directory: HeldDirectory) -> None:
        entry = directory.path / ".git"
        if os.path.lexists(entry):  # noqa: ASYNC240
            raise GitFailed("git init", f"{entry} is there, and is no repository that is used here")
        made = await Git(self._sandbox, directory).run("init", "--quiet", "--template=")
        if not made.ok:
            raise GitFailed("git init", made.stderr)
