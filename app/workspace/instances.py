"""Puts a workspace together with the models and agents that its configuration gives it."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.events.telemetry.observer import NOBODY, Observer
from app.project.config.keys import commands
from app.project.config.loader import LoadedConfig
from app.project.sandbox.scope import SandboxWorkspace, Walls
from app.project.snapshot.snapshots import Snapshots
from app.providers.answers import MAX_ANSWER_BYTES
from app.providers.base import Provider
from app.providers.catalogue import Catalogue
from app.providers.connected import AuthStore, ProviderSettings, ServerKeys, assemble, connect, key_variables
from app.providers.registry import Providers, shared_scripted
from app.providers.selection import Connected, ProviderModelNotFoundError, default_model, find
from app.schema.config import Config
from app.schema.errors import DirectoryForbidden
from app.schema.model import Agent, Auth, Model
from app.tools.external import custom_tools
from app.tools.mcp.servers import McpServers, McpSettings
from app.tools.plugins.host import PluginHost
from app.tools.plugins.loading import Plugins
from app.users.accounts import ModelAccount, ModelAccounts
from app.users.principal import OPERATOR, Principal
from app.util.tasks import ProcessLocks, TaskSet
from app.workspace.agents import define
from app.workspace.formatters import Formatters
from app.workspace.instance import Instance, InstanceExtensions, InstanceModels, Resources, Trees
from app.workspace.lsp.servers import LanguageServers, LspSettings
from app.workspace.workspace import Workspace
from app.workspace.workspaces import Workspaces


@dataclass(frozen=True)
class _CachedInstance:
    """An instance and what it was made from: it is made anew when one of these is another object."""

    config: LoadedConfig
    auth: dict[str, Auth]
    instance: Instance
    owned: dict[str, tuple[ModelAccount, Instance]] = field(default_factory=dict)
    """The instances with the models of users, by their names."""


@dataclass(frozen=True)
class ModelSources:
    """The sources of a directory's models: the catalogue, the server's keys, users' keys. `scripted` makes the scripted provider
    of every directory."""

    known: Catalogue
    auth: AuthStore
    accounts: ModelAccounts
    scripted: Callable[[], Provider] = shared_scripted
    observer: Observer = NOBODY
    max_part_bytes: int = MAX_ANSWER_BYTES

    def providers(self, connected: Connected, account: ModelAccount | None = None) -> Providers:
        """`account`: of the user who makes the calls."""
        return Providers(
            connected, scripted=self.scripted, account=account, observer=self.observer, max_part_bytes=self.max_part_bytes
        )


class Instances:
    """`hide` keeps variables that hold keys from commands."""

    def __init__(
        self,
        workspaces: Workspaces,
        models: ModelSources,
        data_dir: Path,
        mcp: McpSettings,
        lsp: LspSettings,
        plugins: PluginHost,
        *,
        hide: Callable[[Iterable[str]], None],
    ) -> None:
        self.workspaces = workspaces
        self._hide = hide
        self._models = models
        self._tool_output_dir = data_dir / "tool-output"
        self._mcp_settings = mcp
        self._lsp_settings = lsp
        self.plugins = plugins
        self._cached: dict[str, _CachedInstance] = {}
        self._locks = ProcessLocks()
        self._closing = TaskSet()
        self._loading = TaskSet()

    async def get(self, directory: str | None = None, owner: str = "") -> Instance:
        """The directory's instance with the present configuration, and the keys of the user `owner`. Raises what Workspaces.get
        and Workspace.config raise."""
        workspace = await self.workspaces.get(directory)
        path = workspace.location.directory
        async with self._locks.lock(path):
            config, auth = await workspace.config(), self._models.auth.all()
            cached = self._cached.get(path)
            if cached is None or cached.config is not config or cached.auth != auth:
                cached = _CachedInstance(config, auth, await self._make(workspace, config, auth))
                self._replace(path, cached)
                for closed in self._cached.keys() - {path, *self.workspaces.open_directories()}:
                    self.plugins.close(closed)
                    self._replace(closed, None)
        if not owner:
            return cached.instance
        account = await self._models.accounts.for_user(owner)
        self.workspaces.require_admitted(account.principal, cached.instance.sandbox_workspace.directories()[-1])
        return self._owned(cached, account)

    async def get_for_stored_work(self, directory: str, owner: str) -> Instance:
        """Like `get`, for work that a queue or the recovery begins, not a request. Also raises DirectoryForbidden if the owner
        was removed, or may only read."""
        if owner and not await self._models.accounts.may_work(owner):
            raise DirectoryForbidden(f"{owner}, whose session it is, was removed or may only read.", directory=directory)
        return await self.get(directory, owner)

    def _owned(self, cached: _CachedInstance, account: ModelAccount) -> Instance:
        made_for, before = cached.owned.get(account.principal.name, (None, None))
        if before is not None and made_for == account:
            return before
        instance = self._with_account(cached, account)
        cached.instance.resources.add(instance.models.providers, before.models.providers if before else None)
        cached.owned[account.principal.name] = account, instance
        return instance

    def _with_account(self, cached: _CachedInstance, account: ModelAccount) -> Instance:
        base, shared = cached.instance, account.shares_server_keys
        settings = ProviderSettings.of_loaded(cached.config, base.config)
        server = ServerKeys(cached.config.environ, cached.auth) if shared else ServerKeys({}, {})
        connected = connect(self._models.known, settings, server, account.keys, shares_server_keys=shared)
        providers = self._models.providers(connected, account)
        models = InstanceModels(connected, providers)
        walls = self.walls_of(account.principal)
        return replace(base, models=models, may_read=walls.admits, sandbox_workspace=replace(base.sandbox_workspace, walls=walls))

    def walls_of(self, principal: Principal) -> Walls:
        """What the principal's sessions must not see. Of the server's own files they may see only the kept outputs of tools:
        their names cannot be guessed, and the directory of all of them is not listed."""
        outputs = os.path.realpath(self._tool_output_dir)

        def admits(real: str) -> bool:
            if os.path.dirname(real) == outputs:  # noqa: PTH120
                return True
            return not self.workspaces.is_servers(real) if principal.may_see_all else self.workspaces.admits(principal, real)

        return Walls(lambda: self.workspaces.roots_kept_from(principal), admits)

    async def close(self) -> None:
        await asyncio.gather(*(self.close_one(directory) for directory in [*self._cached]))
        await self._closing.wait()
        await self._loading.wait()
        self.plugins.close_all()

    async def close_one(self, directory: str) -> None:
        """Closes a directory's instance. Its connections and processes are closed, unless a turn still uses them."""
        self.plugins.close(directory)
        self._replace(directory, None)
        await self._closing.wait()

    def open_mcp(self, directory: str) -> McpServers | None:
        """The MCP servers of a directory in use."""
        cached = self._cached.get(directory)
        return cached.instance.extensions.mcp if cached else None

    async def _mcp(self, sandbox: SandboxWorkspace, config: Config) -> McpServers:
        """The directory's MCP servers, not started. Clients' choices since its last disposal hold, even if it opens only now."""
        directory = str(sandbox.directory)
        before = self.open_mcp(directory)
        made = before or McpServers(sandbox, self._mcp_settings)
        made = made.configured(config.mcp, config.experimental.mcp_timeout, sandbox)
        if before is None:
            made.follow(await self._mcp_settings.states.in_directory(directory))
        return made

    def _language_servers(self, sandbox: SandboxWorkspace, config: Config) -> LanguageServers:
        """The directory's present language servers, if the configuration has not changed them."""
        cached = self._cached.get(str(sandbox.directory))
        before = cached.instance.extensions.language_servers if cached else None
        if before is not None and before.serves(sandbox, config.lsp):
            return before
        return LanguageServers(sandbox, self._lsp_settings, config.lsp)

    async def _extensions(self, workspace: Workspace, loaded: LoadedConfig, plugins: Plugins) -> InstanceExtensions:
        config, mcp, lsp = plugins.config, self._mcp_settings, self._lsp_settings
        sandbox = workspace.sandboxed(config)
        return InstanceExtensions(
            mcp=await self._mcp(sandbox, config),
            language_servers=self._language_servers(sandbox, config),
            formatters=Formatters(sandbox, lsp.sandbox, lsp.environment, config.formatter, lsp.flags),
            commands=commands(config, Path(workspace.location.worktree)),
            skills=loaded.skills,
            hooks=plugins.hooks,
            tools=custom_tools(plugins.tools, mcp.sandbox, mcp.environment),
            plugins=plugins.statuses,
        )

    def snapshots(self) -> list[Snapshots]:
        """The snapshots of every directory in use."""
        return [cached.instance.snapshots for cached in self._cached.values() if cached.instance.snapshots]

    async def forget(self, directory: str) -> None:
        """The directory's next use opens it anew."""
        self.workspaces.forget(directory)
        await self.close_one(directory)

    def mcp_servers(self) -> list[McpServers]:
        """The MCP servers of every directory in use."""
        return [cached.instance.extensions.mcp for cached in self._cached.values()]

    def settings(self, instance: Instance) -> ProviderSettings:
        return ProviderSettings.of(instance.config.layer(), os.environ)

    def _replace(self, directory: str, cached: _CachedInstance | None) -> None:
        """Acquires the new instance's resources first, so that those of both stay open."""
        before = self._cached.pop(directory, None)
        if cached is not None:
            cached.instance.resources.acquire()
            self._cached[directory] = cached
        if before is not None:
            before.instance.resources.release()

    async def _make(self, workspace: Workspace, loaded: LoadedConfig, auth: dict[str, Auth]) -> Instance:
        plugins = await self.plugins.open(workspace.location, loaded)
        config = plugins.config
        settings, known = ProviderSettings.of_loaded(loaded, config), self._models.known
        connected = connect(known, settings, ServerKeys(loaded.environ, auth))
        # A project that is not trusted must not hide variables from everybody's commands by calling them keys.
        operators = assemble(known, settings.operators, loaded.environ, auth) if settings.operators else connected
        self._hide(key_variables(operators.values(), os.environ))
        providers = self._models.providers(connected)
        agents = define(config, self._tool_output_dir)
        self._loading.start(providers.load(_unnamed_models(config, agents, connected)), "load the SDKs of models")
        extensions = await self._extensions(workspace, loaded, plugins)
        undo, walls = await workspace.snapshots(config), self.walls_of(OPERATOR)
        snapshots, no_undo = (None, undo) if isinstance(undo, str) else (undo, None)
        return Instance(
            location=replace(workspace.location, no_undo=no_undo),
            flags=workspace.flags,
            config=config,
            agents=agents,
            models=InstanceModels(connected, providers),
            extensions=extensions,
            resources=Resources(providers, extensions.mcp, extensions.language_servers, self._closing),
            sandbox_workspace=replace(workspace.sandboxed(config), walls=walls),
            may_read=walls.admits,
            trees=Trees(snapshots) if snapshots else None,
            bounds=workspace.bounds,
            snapshots=snapshots,
        )


def _unnamed_models(config: Config, agents: Mapping[str, Agent], connected: Connected) -> Iterator[Model]:
    """The models of prompts that name none: the agents' and the default one."""
    refs = [agent.model for agent in agents.values() if agent.model]
    if connected:
        refs.append(default_model(connected, config.model, config.provider or None))
    for ref in refs:
        with suppress(ProviderModelNotFoundError):
            yield find(connected, ref.provider_id, ref.model_id)
