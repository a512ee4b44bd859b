"""A directory in use: its project, its checked-out branch, its current configuration, its snapshots."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.project.config.flags import Flags
from app.project.config.loader import LoadedConfig, load, load_global
from app.project.config.patch import patch, patch_global
from app.project.config.sources import ConfigWatch, changed
from app.project.config.well_known import OrganisationConfig, Organisations
from app.project.discovery import ProjectInfo, branch
from app.project.location import Location
from app.project.sandbox.git import Git
from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace, Walls
from app.project.snapshot.snapshots import Snapshots, snapshot_dir
from app.record.directory_state import DirectoryStates
from app.record.postgres import Locks
from app.schema.config import Config
from app.schema.errors import ServiceError
from app.tools.search import SearchPlace
from app.util.project_files import DirectoryReplaced, HeldDirectory, ProjectBounds, is_below, read_bytes, warn_once

log = logging.getLogger(__name__)

_BRANCH_IN_REFTABLE = ".invalid"
"""The branch name in `HEAD` if git stores references as reftables."""


class Head:
    """The checked-out branch, read from the checkout's git directory. In a linked worktree that is not the repository's."""

    def __init__(self, git: Git) -> None:
        assert git.repository is not None
        self._git = git
        self._git_dir = git.repository.git_dir
        self._seen: ConfigWatch | None = None
        self._looking = asyncio.Lock()
        self.branch = ""
        """As of the last `refresh`; empty if HEAD is detached."""
        self.is_compared = False
        """Whether the branch at the opening was compared with what other servers have announced."""

    async def refresh(self) -> bool:
        """Returns whether the branch has changed since the last call. Costs two stat calls if nothing changed."""
        async with self._looking:
            if self._seen is not None and not changed(self._seen.stamps):
                return False
            seen = ConfigWatch()
            seen.exists(self._git_dir / "HEAD")
            seen.exists(self._git_dir / "reftable" / "tables.list")
            before, self.branch = self.branch, await self._read()
            self._seen = seen
            return self.branch != before

    async def _read(self) -> str:
        try:
            text = await asyncio.to_thread(read_bytes, self._git_dir / "HEAD", lambda real: is_below(real, str(self._git_dir)))
        except OSError as error:
            warn_once(log, f"the branch of {self._git.directory.path} is not known: {error}")
            return ""
        # `ref: refs/heads/main`, or the commit's hash if HEAD is detached
        name = (text or b"").decode("utf-8", "replace").strip().partition("ref: ")[2].removeprefix("refs/heads/")
        return name if name != _BRANCH_IN_REFTABLE else await branch(self._git) or ""


CONFIGURATION = "configuration"
"""The state with this name says that the directory's configuration was changed."""


@dataclass(frozen=True)
class WorkspaceSettings:
    data_dir: Path
    flags: Flags
    organisations: Organisations
    snapshot_bytes: int
    locks: Locks
    states: DirectoryStates
    sandbox: Sandbox
    trusts_projects: Callable[[], bool] = lambda: True
    """False on a server with users, where a project's configuration may be written by others than the operator."""


class Workspace:
    """`walls`: what programs started here never reach, whichever user starts them. `bounds`: where its files may lie."""

    def __init__(
        self, settings: WorkspaceSettings, directory: HeldDirectory, found: ProjectInfo, walls: Walls, bounds: ProjectBounds
    ) -> None:
        """Raises DirectoryReplaced if the checkout does not hold the directory any more."""
        self._settings = settings
        self.found = found
        self._bounds = bounds
        real = str(directory.real)
        self.location = Location(str(directory.path), found.id, str(found.checkout), found.vcs == "git", found.git, real)
        self.held = (found.git.directory, directory, *found.git.also) if found.git else (directory,)
        if not directory.real.is_relative_to(self.held[0].real):
            raise DirectoryReplaced(directory.path)
        self.walls = walls
        self.head = Head(found.git) if found.git else None
        self._snapshots: Snapshots | None = None
        self._config: LoadedConfig | None = None
        self._organisation: OrganisationConfig | None = None
        self._logged_error: str | None = None
        self._loading = asyncio.Lock()
        self.last_used = time.monotonic()

    def sandboxed(self, config: Config) -> SandboxWorkspace:
        location = self.location
        return SandboxWorkspace(Path(location.directory), Path(location.worktree), config.sandbox, self.held, self.walls)

    @property
    def directories(self) -> tuple[HeldDirectory, ...]:
        """First the top of the checkout, last the directory."""
        return self.held[:2]

    def search_place(self, walls: Walls) -> SearchPlace:
        """`walls`: of the user who searches."""
        *_, directory = self.directories
        return SearchPlace(directory.path, directory, self.directories, self._settings.sandbox, walls)

    @property
    def flags(self) -> Flags:
        return self._settings.flags

    @property
    def bounds(self) -> ProjectBounds:
        """Where the workspace's files may lie: a directory that has become a link since it was opened leads nowhere."""
        return replace(self._bounds, trusted=self._settings.trusts_projects())

    async def config(self) -> LoadedConfig:
        """The current configuration, reloaded if a file changed. Raises ConfigJsonError, ConfigInvalidError."""
        async with self._loading:
            # A caller that waited here gets the object that was loaded meanwhile, so concurrent callers get the same object.
            organisation = await self._settings.organisations.config()
            if self._config is None or organisation is not self._organisation or self._is_outdated(self._config):
                self._config = await self._load_or_log(organisation)
                self._organisation = organisation
            return self._config

    def _is_outdated(self, config: LoadedConfig) -> bool:
        """Whether a file has changed, or the server has got its first user or lost its last."""
        trusted = config.split is None
        return changed(config.watched) or trusted is not self._settings.trusts_projects()

    async def patch_config(self, update: dict[str, Any]) -> None:
        """Merges a change into the directory's configuration file, one change at a time. Raises as `patch` does."""
        directory = self.location.directory
        async with self._settings.locks.lock(f"configuration {directory}"), self._loading:
            await asyncio.to_thread(patch, Path(directory), update, self.bounds)
            self.reload()
        await self._settings.states.put(directory, CONFIGURATION)

    def reload(self) -> None:
        self._config = None

    async def snapshots(self, config: Config) -> Snapshots | str:
        """The snapshots, or the reason why there are none, which completes "no undo here: …"."""
        if config.snapshot is False:
            return "snapshots are switched off in the configuration (snapshot: false)"
        if self._snapshots is None:
            made = self._make_snapshots()
            if self.location.git is None and (reason := await made.no_undo()):
                return reason
            self._snapshots = made
        return self._snapshots

    def _make_snapshots(self) -> Snapshots:
        directory, settings = self.directories[-1], self._settings
        git = self.location.git or Git(settings.sandbox, directory, walls=self.walls)
        return Snapshots(
            snapshot_dir(settings.data_dir, self.location.project_id, git.directory.real),
            git,
            directory.real,
            [settings.data_dir, *map(Path, self.walls.hidden())],
            max_bytes=settings.snapshot_bytes,
            locks=settings.locks,
        )

    async def _load_or_log(self, organisation: OrganisationConfig) -> LoadedConfig:
        """Logs an error once, however often it occurs in a row, and raises it."""
        try:
            loaded = await asyncio.to_thread(self._load, organisation)
        except ServiceError as error:
            if error.message != self._logged_error:
                log.warning("the configuration of %s cannot be used: %s", self.location.directory, error.message)
            self._logged_error = error.message
            raise
        self._logged_error = None
        return loaded

    def _load(self, organisation: OrganisationConfig) -> LoadedConfig:
        directory = Path(self.location.directory)
        loaded = load(directory, self.found.checkout, self.flags, organisation.layers, organisation.environ, self.bounds)
        for warning in loaded.warnings:
            log.warning("skipped a configuration file: %s", warning.message)
        if loaded.unused:
            keys = ", ".join(loaded.unused)
            log.info("the configuration of %s has keys that change nothing here: %s", self.location.directory, keys)
        return loaded


async def read_global_config() -> Config:
    """Raises ConfigJsonError, ConfigInvalidError."""
    return await asyncio.to_thread(load_global)


async def patch_global_config(locks: Locks, update: dict[str, Any]) -> Config:
    """Merges a change into the user's file, one change at a time. Raises as `patch_global` does."""
    async with locks.lock("configuration of all directories"):
        await asyncio.to_thread(patch_global, update)
    return await read_global_config()
