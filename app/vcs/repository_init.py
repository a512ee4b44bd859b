"""Makes a directory a git repository."""

from pathlib import Path

from app.project.registry import Projects
from app.runs.busy_directories import BusyDirectories
from app.runs.disposal import Disposal
from app.schema.project import Project
from app.util.git import git
from app.vcs.errors import GitFailed
from app.workspace.instances import Instances


class RepositoryInit:
    def __init__(self, instances: Instances, projects: Projects, busy: BusyDirectories, disposal: Disposal) -> None:
        self._instances = instances
        self._projects = projects
        self._busy = busy
        self._disposal = disposal

    async def project_of(self, directory: str) -> Project:
        """The directory's project, in a repository from now on. One that was in none is closed on all servers and opened anew.
        Raises DirectoryBusy."""
        if not (await self._instances.workspaces.get(directory)).location.is_git:
            await self._busy.require_idle(directory)
            made = await git(["init", "--quiet", "--template="], Path(directory))
            if not made.ok:
                raise GitFailed("git init", made.stderr)
            await self._disposal.directory(directory)
        location = (await self._instances.workspaces.get(directory)).location
        return await self._projects.get(location.project_id)
