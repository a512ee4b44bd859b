"""A directory in use: its project, its current configuration, its snapshots."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.config.flags import Flags
from app.config.loader import LoadedConfig, load
from app.config.patch import patch
from app.config.well_known import OrganisationConfig, Organisations
from app.project.discovery import ProjectInfo
from app.project.location import Location
from app.schema.config import Config
from app.schema.errors import ServiceError
from app.snapshot.snapshots import Snapshots, snapshot_dir
from app.storage.directory_state import DirectoryStates
from app.storage.locks import Locks
from app.util.dataclass import dataclass
from app.util.project_files import ProjectBounds
from app.workspace.head import Head

CONFIGURATION = "configuration"
"""A directory's state with this name: its configuration was changed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkspaceSettings:
    data_dir: Path
    flags: Flags
    organisations: Organisations
    snapshot_bytes: int
    locks: Locks
    states: DirectoryStates
    trusts_projects: Callable[[], bool] = lambda: True
    """False on a server with users: who writes a project's configuration is not who runs the server."""


class Workspace:
    def __init__(self, settings: WorkspaceSettings, directory: str, found: ProjectInfo, bounds: ProjectBounds) -> None:
        self._settings = settings
        self.found = found
        self._bounds = bounds
        self.location = Location(directory, found.id, str(found.checkout), found.vcs == "git")
        self.head = Head(found.checkout, found.git_dir) if found.git_dir else None
        self._snapshots: Snapshots | None = None
        self._config: LoadedConfig | None = None
        self._organisation: OrganisationConfig | None = None
        self._logged_error: str | None = None
        self._loading = asyncio.Lock()
        self.last_used = time.monotonic()

    @property
    def flags(self) -> Flags:
        return self._settings.flags

    @property
    def bounds(self) -> ProjectBounds:
        """Where its files may lie: what has become a link since the directory was opened leads nowhere."""
        return replace(self._bounds, trusted=self._settings.trusts_projects())

    async def config(self) -> LoadedConfig:
        """The current configuration, reloaded if a file changed. Raises ConfigJsonError, ConfigInvalidError."""
        async with self._loading:
            # A caller that waited here gets the object that was loaded meanwhile, so concurrent callers get the same object.
            organisation = await self._settings.organisations.config()
            if self._config is None or organisation is not self._organisation or self._config.is_stale():
                self._config = await self._load_once(organisation)
                self._organisation = organisation
            return self._config

    async def patch_config(self, update: dict[str, Any]) -> None:
        """Merges a change into the directory's configuration file, one change at a time. Raises as `patch` does."""
        directory = self.location.directory
        async with self._settings.locks.lock(f"configuration {directory}"), self._loading:
            await asyncio.to_thread(patch, Path(directory), update, self.bounds)
            self.reload()
        await self._settings.states.put(directory, CONFIGURATION)

    def reload(self) -> None:
        self._config = None

    def snapshots(self, config: Config) -> Snapshots | None:
        """None outside git, or if the configuration disables snapshots."""
        if not self.location.is_git or config.snapshot is False:
            return None
        if self._snapshots is None:
            self._snapshots = Snapshots(
                snapshot_dir(self._settings.data_dir, self.location.project_id, self.found.checkout),
                self.found.checkout,
                Path(self.location.directory),
                [self._settings.data_dir],
                max_bytes=self._settings.snapshot_bytes,
                locks=self._settings.locks,
            )
        return self._snapshots

    async def _load_once(self, organisation: OrganisationConfig) -> LoadedConfig:
        """Logs each error once, however often it occurs."""
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
        loaded = load(
            Path(self.location.directory),
            self.found.checkout,
            self.flags,
            organisation.layers,
            organisation.environ,
            trusts_project=self._settings.trusts_projects(),
            bounds=self.bounds,
        )
        for warning in loaded.warnings:
            log.warning("skipped a configuration file: %s", warning.message)
        if loaded.unused:
            keys = ", ".join(loaded.unused)
            log.info("the configuration of %s has keys that change nothing here: %s", self.location.directory, keys)
        return loaded


def is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  returns False for a path with NUL
