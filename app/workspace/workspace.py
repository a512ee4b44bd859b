"""A directory in use: its project, its configuration as the files say now, its snapshots."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.flags import Flags
from app.config.loader import LoadedConfig, load
from app.config.patch import patch
from app.config.well_known import OrganisationConfig, Organisations
from app.project.discovery import ProjectInfo
from app.project.place import Place
from app.schema.config import Config
from app.schema.errors import ServiceError
from app.snapshot.snapshots import Snapshots, snapshot_dir
from app.workspace.head import Head

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkspaceSettings:
    data_dir: Path
    flags: Flags
    organisations: Organisations
    snapshot_bytes: int


class Workspace:
    def __init__(self, settings: WorkspaceSettings, directory: str, found: ProjectInfo) -> None:
        self._settings = settings
        self.found = found
        self.place = Place(directory, found.id, str(found.checkout), found.vcs == "git")
        self.head = Head(found.checkout, found.git_dir) if found.git_dir else None
        self._snapshots: Snapshots | None = None
        self._config: LoadedConfig | None = None
        self._said: OrganisationConfig | None = None
        self._mistake: str | None = None
        self._loading = asyncio.Lock()
        self.last_used = time.monotonic()

    @property
    def flags(self) -> Flags:
        return self._settings.flags

    async def config(self) -> LoadedConfig:
        """As the files say now. Raises ConfigJsonError, ConfigInvalidError."""
        async with self._loading:
            # Who waited here finds what was loaded meanwhile: to those who ask at once it is one and the same object.
            said = await self._settings.organisations.said()
            if self._config is None or said is not self._said or self._config.is_stale():
                self._config = await self._load_once(said)
                self._said = said
            return self._config

    async def patch_config(self, update: dict[str, Any]) -> None:
        """Merge a change into the directory's own file, one change at a time. Raises as `patch` does."""
        async with self._loading:
            await asyncio.to_thread(patch, Path(self.place.directory), update)
            self._config = None

    def snapshots(self, config: Config) -> Snapshots | None:
        """None outside git or where the configuration turns them off."""
        if not self.place.is_git or config.snapshot is False:
            return None
        if self._snapshots is None:
            self._snapshots = Snapshots(
                snapshot_dir(self._settings.data_dir, self.place.project_id, self.found.checkout),
                self.found.checkout,
                Path(self.place.directory),
                [self._settings.data_dir],
                most_bytes=self._settings.snapshot_bytes,
            )
        return self._snapshots

    async def _load_once(self, said: OrganisationConfig) -> LoadedConfig:
        """The log has one line for each mistake, however many ask while it stands."""
        try:
            loaded = await asyncio.to_thread(self._load, said)
        except ServiceError as error:
            if error.message != self._mistake:
                log.warning("the configuration of %s cannot be used: %s", self.place.directory, error.message)
            self._mistake = error.message
            raise
        self._mistake = None
        return loaded

    def _load(self, said: OrganisationConfig) -> LoadedConfig:
        loaded = load(Path(self.place.directory), self.found.checkout, self.flags, said.layers, said.environ)
        for warning in loaded.warnings:
            log.warning("a configuration file was left out: %s", warning.message)
        return loaded


def is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  also false for what no Path can name (NUL)
