"""A directory in use, as the agent sees it: its location, configuration, agents, models, tools and snapshots at one moment."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.project.config.flags import Flags
from app.project.location import Location
from app.project.sandbox.scope import SandboxWorkspace
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.snapshots import Snapshots
from app.providers.registry import Providers
from app.providers.selection import default_model, find
from app.schema.config import Config
from app.schema.model import Agent, Command, Model, ProviderInfo, Skill
from app.schema.part import ModelRef
from app.schema.session import FileDiff
from app.tools.base import Tool
from app.tools.mcp.servers import McpServers
from app.tools.plugins.loading import ExtensionStatus
from app.tools.plugins.runner import HookRunner
from app.util.project_files import ProjectBounds, resolved
from app.util.tasks import TaskSet
from app.workspace.agents import default_agent
from app.workspace.agents import find as find_agent
from app.workspace.formatters import Formatters
from app.workspace.lsp.servers import LanguageServers

log = logging.getLogger(__name__)


class Resources:
    """MCP servers, language servers and connections to providers, open from the first `acquire` to the last `release`. A
    directory holds those of its current instance, a turn those that it began with. A later `acquire` opens them again. `closing`:
    the tasks that close them."""

    def __init__(self, providers: Providers, mcp: McpServers, language_servers: LanguageServers, closing: TaskSet) -> None:
        self._providers = [providers]
        self._outdated: list[Providers] = []
        """Replaced providers, which a turn that began before may use."""
        self._programs = (mcp, language_servers)
        self._users = self._turns = 0
        self._closing = closing

    def add(self, providers: Providers, replaced: Providers | None = None) -> None:
        """Adds the providers of a user of the directory, to be closed with the others; the `replaced` ones when no turn runs."""
        self._providers.append(providers)
        if replaced is not None:
            self._providers.remove(replaced)
            self._outdated.append(replaced)
            self._close_outdated()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A turn holds it while it runs."""
        self.acquire()
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1
            self._close_outdated()
            self.release()

    def _close_outdated(self) -> None:
        if self._turns == 0:
            for providers in self._outdated:
                self._closing.start(providers.close(), "close what a user's models replaced")
            self._outdated.clear()

    def acquire(self) -> None:
        self._users += 1
        if self._users == 1:
            for programs in self._programs:
                programs.start()

    def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            for programs in self._programs:
                programs.stop()
            self._closing.start(self._close(), "close an instance")

    async def _close(self) -> None:
        if self._users == 0:
            for providers in self._providers:
                await providers.close()
        for programs in self._programs:
            await programs.stopped()


class Trees:
    """Snapshots for a turn: a failed snapshot is logged and missing, and the turn goes on."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    async def track(self) -> str | None:
        try:
            return await self._snapshots.track()
        except SnapshotFailed as failure:
            log.warning("no snapshot of this step: %s", failure.message)
            return None

    async def patch(self, before: str, after: str) -> list[str]:
        try:
            return [str(path) for path in await self._snapshots.patch(before, after)]
        except SnapshotFailed as failure:
            log.warning("what this step changed is not known: %s", failure.message)
            return []

    async def diff_full(self, a: str, b: str) -> list[FileDiff] | None:
        """None also if one is not there any more, or is another machine's."""
        try:
            return await self._snapshots.diff_full(a, b)
        except SnapshotFailed as failure:
            log.warning("a diff stays as it was: %s", failure.message)
            return None


@dataclass(frozen=True)
class InstanceModels:
    connected: Mapping[str, ProviderInfo]
    providers: Providers

    def find(self, ref: ModelRef) -> Model:
        """Raises ProviderModelNotFoundError."""
        return find(self.connected, ref.provider_id, ref.model_id)


@dataclass(frozen=True)
class InstanceExtensions:
    """The parts that a directory's configuration adds to the server."""

    mcp: McpServers
    language_servers: LanguageServers
    formatters: Formatters
    commands: Sequence[Command] = ()
    skills: Sequence[Skill] = ()
    hooks: HookRunner = field(default_factory=HookRunner)
    tools: Sequence[Tool[Any]] = ()
    """The tools of plugins and of the configuration's folders."""
    plugins: Sequence[ExtensionStatus] = ()


@dataclass(frozen=True)
class Instance:
    location: Location
    flags: Flags
    config: Config
    agents: Mapping[str, Agent]
    models: InstanceModels
    extensions: InstanceExtensions
    resources: Resources
    """The connections of providers and MCP servers: to be acquired by work with the instance that lasts longer than a request."""
    sandbox_workspace: SandboxWorkspace
    """What programs that work for the instance see."""
    trees: Trees | None = None
    """None without undo (`location.no_undo`)."""
    snapshots: Snapshots | None = None
    """The snapshots in full, for reverts."""
    may_read: Callable[[str], bool] | None = None
    """Whether a file, its path resolved, is open to the user of these sessions; None: whatever permissions allow."""
    bounds: ProjectBounds | None = None
    """Where the project's own files may lie; None: wherever they lie now."""
    chosen_tools: dict[tuple[str, str, str], dict[str, Tool[Any]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The tools that turns have chosen from the toolbox, by agent, provider and model."""

    def agent(self, name: str | None = None) -> Agent:
        """The agent of that name, or the one that answers if nobody named one. Raises BadRequest."""
        return find_agent(self.agents, name) if name else default_agent(self.agents, self.config)

    def default_model(self) -> ModelRef:
        """The model that answers if nobody named one."""
        return default_model(self.models.connected, self.config.model, self.config.provider or None)

    def hides(self, path: Path | str) -> bool:
        return self.may_read is not None and not self.may_read(resolved(path))
