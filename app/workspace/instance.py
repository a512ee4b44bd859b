"""A directory in use, as the agent sees it: its place, configuration, agents, models, tools and snapshots at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.config.flags import Flags
from app.mcp.servers import McpServers
from app.plugin.loading import ExtensionStatus
from app.plugin.runner import HookRunner
from app.project.place import Place
from app.provider.base import Provider
from app.provider.models.catalogue import Known
from app.schema.agent import Agent, Command, Skill
from app.schema.config import Config
from app.schema.model import Model, ProviderInfo
from app.schema.session import FileDiff
from app.snapshot.snapshots import Snapshots
from app.tool.base import Tool
from app.workspace.resources import Resources


class Trees(Protocol):
    """Snapshots of the worktree, named by the hash of their tree."""

    async def track(self) -> str | None:
        """None when no snapshot could be taken; the reason is logged."""
        ...

    async def patch(self, before: str, after: str) -> list[str]:
        """Absolute paths of the files that differ between two trees."""
        ...

    async def diff_full(self, a: str, b: str) -> list[FileDiff]: ...


class ModelProviders(Protocol):
    def provider_for(self, model: Model) -> Provider: ...


@dataclass(frozen=True)
class Instance:
    place: Place
    flags: Flags
    config: Config
    agents: Mapping[str, Agent]
    connected: Mapping[str, ProviderInfo]
    known: Known
    providers: ModelProviders
    commands: Sequence[Command]
    skills: Sequence[Skill]
    mcp: McpServers
    resources: Resources
    """Of `providers` and `mcp`: whoever works with the instance for longer than a request has them in use."""
    trees: Trees | None
    """None outside git or with `snapshot: false`."""
    snapshots: Snapshots | None = None
    """The same with all that revert needs of them."""
    hooks: HookRunner = field(default_factory=HookRunner)
    tools: Sequence[Tool[Any]] = ()
    """Of plugins and of the configuration's folders."""
    plugins: Sequence[ExtensionStatus] = ()
