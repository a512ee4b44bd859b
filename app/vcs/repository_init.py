"""Makes a directory a git repository."""

import os
from pathlib import Path

from app.project.registry import Projects
from app.runs.busy_directories import BusyDirectories
from app.runs.disposal import Disposal
from app.sandbox.git import Git
from app.sandbox.sandbox import Sandbox
from app.schema.project import Project
from app.util.held_directory import HeldDirectory
from app.vcs.errors import GitFailed
from app.workspace.instances import Instances


class RepositoryInit:
    def __init__(
        self, instances: Instances, projects: Projects, busy: BusyDirectories, disposal: Disposal, sandbox: Sandbox
    ) -> None:
        self._instances = instances
        self._projects = projects
        self._busy = busy
        self._disposal = disposal
        self._sandbox = sandbox

    async def project_of(self, directory: str) -> Project:
        """The directory's project, in a repository from now on. One that was in none is closed on all servers and opened anew.
        Raises DirectoryBusy, GitFailed."""
        if not (await self._instances.workspaces.get(directory)).location.is_git:
            await self._busy.require_idle(directory)
            await self._init(Path(directory))
            await self._disposal.directory(directory)
        location = (await self._instances.workspaces.get(directory)).location
        return await self._projects.get(location.project_id)

    async def _init(self, directory: Path) -> None:
        if os.path.lexists(directory / ".git"):  # noqa: ASYNC240
            raise GitFailed("git init", f"{directory / '.git'} is there, and is no repository that is used here")
        made = await Git(self._sandbox, HeldDirectory(directory)).run("init", "--quiet", "--template=")
        if not made.ok:
            raise GitFailed("git init", made.stderr)
