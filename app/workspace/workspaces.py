"""The directories in use, opened on first use. Decides which directories may be opened."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.project.discovery import discover
from app.project.registry import Projects
from app.schema.errors import BadRequest, DirectoryForbidden
from app.users.principal import Principal, is_within, may_enter, roots_of
from app.util.project_files import ProjectBounds
from app.workspace.workspace import Workspace, WorkspaceSettings, is_directory
from app.workspace.worktree_places import WorktreePlaces


class Workspaces:
    """`home`: the server's own directory, the default. `roots`: other directory trees that clients may use; `user_roots`: those
    of users."""

    def __init__(
        self,
        settings: WorkspaceSettings,
        home: Path,
        roots: Sequence[Path],
        projects: Projects,
        idle_seconds: float = 1800,
        user_roots: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._settings = settings
        self._idle_seconds = idle_seconds
        self.home = str(home.resolve())
        self.roots = [self.home, *(str(root.resolve()) for root in roots)]
        self._user_roots = user_roots
        self._data_dir = os.path.realpath(settings.data_dir)
        self._projects = projects
        self._open: dict[str, Workspace] = {}
        self._opening: dict[str, asyncio.Task[Workspace]] = {}
        self.worktree_places = WorktreePlaces(settings.data_dir)

    async def get(self, directory: str | None = None) -> Workspace:
        """Raises BadRequest if it is not a directory, DirectoryForbidden outside the roots."""
        path = _normal(directory) if directory else self.home
        workspace = self._open.get(path) or await self._open_once(path)
        workspace.last_used = time.monotonic()
        return workspace

    def allows(self, real: str) -> bool:
        """Whether a path, given without symlinks, is in a tree that clients may use: a worktree of this server's is where the
        checkout is that it was made of."""
        place = self.worktree_places.origin(real) or real
        return is_within(place, self.roots) or is_within(place, self._user_roots())

    def admits(self, principal: Principal, real: str) -> bool:
        """The same for one of several users."""
        return may_enter(principal, self.worktree_places.origin(real) or real, self.roots, self._user_roots())

    def roots_below(self, principal: Principal, real: str) -> list[str]:
        """The principal's roots below a directory that they may not work in themselves. `real`: the directory without
        symlinks."""
        if self.admits(principal, real):
            return []
        above = real.rstrip("/") + "/"
        return [root for root in roots_of(principal, self.roots, self._user_roots()) if root.startswith(above)]

    def all_open(self) -> list[Workspace]:
        return list(self._open.values())

    def open_directories(self) -> list[str]:
        return list(self._open)

    def forget(self, directory: str) -> None:
        self._open.pop(directory, None)

    def reload(self, directory: str) -> None:
        """The configuration of a directory, and of those below it, is read anew by its next user."""
        for path, workspace in self._open.items():
            if path == directory or path.startswith(directory.rstrip("/") + "/"):
                workspace.reload()

    def evict_idle(self, busy: set[str]) -> list[str]:
        """Closes idle directories and returns them."""
        now = time.monotonic()
        idle = [path for path, one in self._open.items() if path not in busy and now - one.last_used > self._idle_seconds]
        for path in idle:
            self.forget(path)
        return idle

    async def _open_once(self, path: str) -> Workspace:
        if path not in self._opening:
            task = asyncio.create_task(self._open_one(path), name=f"open {path}")
            self._opening[path] = task
            task.add_done_callback(lambda _: self._opening.pop(path, None))
        return await asyncio.shield(self._opening[path])

    async def _open_one(self, path: str) -> Workspace:
        real = await asyncio.to_thread(self._check, path)
        found = await discover(Path(path))
        if path == self.home and str(found.checkout) != "/":
            self.roots.append(str(found.checkout))
        bounds = ProjectBounds(real, str(found.checkout), self._closed)
        workspace = Workspace(self._settings, path, found, bounds)
        if workspace.head is not None:
            await workspace.head.refresh()
        await self._projects.register(workspace.location, found)
        self._open[path] = workspace
        return workspace

    def _closed(self) -> list[str]:
        """What the files of a project that lies elsewhere never lead to."""
        return [self._data_dir, *self._user_roots()]

    def _check(self, path: str) -> str:
        """Where it really is."""
        if "\0" in path or not os.path.isabs(path):  # noqa: PTH117
            raise BadRequest("directory must be an absolute path", ["directory"], path)
        real = os.path.realpath(path)
        if not self.allows(real):
            raise DirectoryForbidden(
                f"{path} is outside the directories that this server works in. Start it there, or name it in OPENSESSION_ROOTS.",
                directory=path,
            )
        if not is_directory(real):
            raise BadRequest(f"There is no directory {path}", ["directory"], path)
        return real


def _normal(directory: str) -> str:
    return os.path.normpath(directory)
