"""The directories in use, opened on first use: which may be opened, where worktrees are, and which branches are checked out."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.events.bus.memory import MemoryBus
from app.project.discovery import OUTSIDE_GIT, checkout_of, discover
from app.project.registry import Projects
from app.project.sandbox.scope import Walls
from app.record.directory_state import DirectoryStates
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.event import BranchName, EventVcsBranchUpdated
from app.users.principal import OPERATOR, Principal, is_within, may_enter, roots_of
from app.util.data_files import remove_tree
from app.util.project_files import HeldDirectory, ProjectBounds, is_below, resolved
from app.util.shared_threads import work_in
from app.workspace.workspace import Workspace, WorkspaceSettings

MAX_OPEN = 250
"""Each keeps two or three descriptors, and clients may name any directory below the roots. Beyond that, the one that was used
longest ago is closed."""


class WorktreePlaces:
    def __init__(self, data_dir: Path) -> None:
        self._top = os.path.realpath(data_dir / "worktree")
        self._origins = Path(self._top) / ".origins"

    def of_project(self, project_id: str) -> Path:
        return Path(self._top) / project_id

    def origin(self, real: str) -> str | None:
        """The checkout of which the worktree at or above a resolved path was made; None for any other path."""
        if not real.startswith(self._top + "/"):
            return None
        project_id, _, below = real[len(self._top) + 1 :].partition("/")
        try:
            return self._file(project_id, below.partition("/")[0]).read_text("utf-8", "surrogateescape")
        except (OSError, ValueError):
            return None

    def was_removed(self, real: str) -> bool:
        """Whether a resolved path is where worktrees stand, and in none of them."""
        return real.startswith(self._top + "/") and self.origin(real) is None

    def add(self, worktree: Path, origin: str) -> None:
        file = self._file(worktree.parent.name, worktree.name)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(origin, "utf-8", "surrogateescape")

    def forget(self, worktree: Path) -> None:
        """The worktree cannot be opened any more."""
        self._file(worktree.parent.name, worktree.name).unlink(missing_ok=True)

    def remove(self, worktree: Path) -> None:
        """Removes the worktree with all its files."""
        self.forget(worktree)
        remove_tree(worktree)

    def _file(self, project_id: str, name: str) -> Path:
        return self._origins / project_id / name


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
        self._data_dir = os.path.realpath(settings.data_dir)
        self._idle_seconds = idle_seconds
        self.home = str(home.resolve())
        self.roots = [self.home, *(str(root.resolve()) for root in roots)]
        self._user_roots = user_roots
        self._projects = projects
        self._open: dict[str, Workspace] = {}
        self._opening: dict[str, asyncio.Task[Workspace]] = {}
        self.worktree_places = WorktreePlaces(settings.data_dir)

    async def get(self, directory: str | None = None) -> Workspace:
        """Raises BadRequest if it is not a directory, DirectoryForbidden outside the roots."""
        path = os.path.normpath(directory) if directory else self.home  # noqa: ASYNC240  asks no disk
        work_in(path)
        workspace = self._open.get(path)
        if workspace is None or not all(map(HeldDirectory.is_in_place, workspace.held)):
            workspace = await self._open_once(path)
        workspace.last_used = time.monotonic()
        return workspace

    async def start(self) -> None:
        """The checkout around the server's own directory may be used too, even before that directory is used."""
        walls = self.walls_of(self.home)
        self._add_root(await checkout_of(Path(self.home), self._settings.sandbox, self._may_use_git_outside(walls), walls))

    def _add_root(self, checkout: Path | None) -> None:
        if checkout is not None and str(checkout) not in ("/", *self.roots):
            self.roots.append(str(checkout))

    def admits(self, principal: Principal, real: str) -> bool:
        """Whether a resolved path is in a tree that the principal may use. A worktree of this server counts as where its checkout
        is."""
        place = self.worktree_places.origin(real) or real
        return not self.is_servers(place) and may_enter(principal, place, self.roots, self._user_roots())

    def is_servers(self, real: str) -> bool:
        """Whether the path is in the data directory, with keys and everybody's conversations, but in no worktree or root in that.
        The data directory itself may be in a root."""
        if not is_within(real, [self._data_dir]) or self.worktree_places.origin(real) is not None:
            return False
        return not is_within(real, [root for root in (*self.roots, *self._user_roots()) if is_within(root, [self._data_dir])])

    def require_admitted(self, principal: Principal, directory: HeldDirectory) -> None:
        """Judged by where the directory is: its name may have led elsewhere when the request, or the queued prompt, named it.
        Raises DirectoryForbidden."""
        if not self.admits(principal, str(directory.real)):
            raise DirectoryForbidden(f"{directory.path} is not a directory that you may work in.", directory=str(directory.path))

    def roots_kept_from(self, principal: Principal) -> list[str]:
        """The roots of other users that a member may not work in."""
        return [root for root in self._user_roots() if not self.admits(principal, root)]

    def walls_of(self, real: str) -> Walls:
        """Walls for all who work in a directory: on a server with users its programs see nothing of another user's roots."""
        place = self.worktree_places.origin(real) or real

        def hidden() -> list[str]:
            return [root for root in self._user_roots() if not is_within(place, [root])]

        def admits(path: str) -> bool:
            if self._settings.trusts_projects():
                return True
            own = [root for root in (*self.roots, *self._user_roots()) if is_within(place, [root])]
            named = self.worktree_places.origin(path) or path
            return is_within(named, own) and not is_within(named, hidden())

        return Walls(hidden, admits)

    def _may_use_git_outside(self, walls: Walls) -> Callable[[str], bool]:
        """Whether a git directory outside the checkout, which only the checkout's own files name, may be used."""
        return lambda real: self.admits(OPERATOR, real) and walls.admits(real)

    def roots_below(self, principal: Principal, real: str) -> list[str]:
        """The principal's roots below a directory that they may not work in themselves. `real`: the directory, resolved."""
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
        """The next use of the directory, or of one below it, reads the configuration anew."""
        for path, workspace in self._open.items():
            if is_below(path, directory):
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
        directory = await asyncio.to_thread(self._held, path)
        walls = self.walls_of(str(directory.real))
        found = await discover(directory.real, self._settings.sandbox, self._may_use_git_outside(walls), walls)
        if path != self.home and found.git and not self._settings.trusts_projects() and not walls.admits(str(found.checkout)):
            found = OUTSIDE_GIT  # a checkout around the roots does not belong to those who work in them
        if path == self.home:
            self._add_root(found.checkout)
        # Places that the files of a project elsewhere never lead to.
        bounds = ProjectBounds(str(directory.real), str(found.checkout), lambda: [self._data_dir, *self._user_roots()])
        workspace = Workspace(self._settings, directory, found, walls, bounds)
        if workspace.head is not None:
            await workspace.head.refresh()
        await self._projects.register(found)
        self._open[path] = workspace
        if len(self._open) > MAX_OPEN:
            self.forget(min(self._open.keys() - {self.home}, key=lambda each: self._open[each].last_used))
        return workspace

    def _held(self, path: str) -> HeldDirectory:
        """Judged by where the directory is: what its name leads to later is not followed."""
        if "\0" in path or not os.path.isabs(path):  # noqa: PTH117
            raise BadRequest("directory must be an absolute path", ["directory"], path)
        try:
            directory: HeldDirectory | None = HeldDirectory(Path(path))
        except OSError:
            directory = None
        if not self.admits(OPERATOR, str(directory.real) if directory else resolved(path)):
            raise DirectoryForbidden(
                f"{path} is outside the directories that this server works in. Start it there, or name it in OPENSESSION_ROOTS.",
                directory=path,
            )
        if directory is None:
            raise BadRequest(f"There is no directory {path}", ["directory"], path)
        return directory


BRANCH = "branch"


class Branches:
    def __init__(self, workspaces: Workspaces, states: DirectoryStates, bus: MemoryBus) -> None:
        self._workspaces = workspaces
        self._states = states
        self._bus = bus

    async def check_all(self) -> None:
        """Checks every directory in use, if any client listens."""
        if self._bus.listeners():
            for workspace in self._workspaces.all_open():
                await self.current(workspace)

    async def current(self, workspace: Workspace) -> str:
        """The branch of a directory, announced if it changed; empty if HEAD is detached, and outside git."""
        head = workspace.head
        if head is None:
            return ""
        changed = await head.refresh()
        if changed or not head.is_compared:
            head.is_compared = True
            updated = EventVcsBranchUpdated(properties=BranchName(branch=head.branch))
            self._states.announce_change(workspace.location.directory, BRANCH, head.branch, updated, seen=changed)
        return head.branch
