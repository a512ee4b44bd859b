"""Loads the plugins and tool files of one configuration. What cannot be loaded is logged and missing, never an error."""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from app.config.keys import Extension, distinct
from app.config.loader import LoadedConfig
from app.plugin.api import PluginInput, PluginTool
from app.plugin.importing import NotInstalled, load_plugin, load_tools
from app.plugin.runner import HookRunner, NamedHooks, error_text
from app.schema.base import Wire
from app.schema.config import Config

log = logging.getLogger(__name__)

T = TypeVar("T")
ExtensionKind = Literal["plugin", "tool"]

OF_PROJECT = "it comes with the project, and code of projects runs only with OPENSESSION_PROJECT_PLUGINS=true"
NOT_PYTHON = "OpenCode's own plugins and tools are JavaScript, which this server does not run"


class ExtensionStatus(Wire):
    """What became of a plugin or a file of tools. `place` is its file or the name that the configuration has for it."""

    name: str
    place: str
    kind: ExtensionKind
    status: Literal["loaded", "skipped", "failed"]
    reason: str | None = None


@dataclass(frozen=True)
class Plugins:
    """`config` is the configuration as the plugins' `config` hooks left it; `tools` are by id."""

    config: Config
    hooks: HookRunner = field(default_factory=HookRunner)
    tools: Mapping[str, PluginTool] = field(default_factory=dict)
    statuses: Sequence[ExtensionStatus] = ()


async def load_all(loaded: LoadedConfig, given: PluginInput, *, project_code: bool, hook_seconds: float) -> Plugins:
    """`project_code`: also what the project itself brings."""
    loading = _Loading(project_code)
    for extension in loading.chosen(loaded.plugins, "plugin"):
        await loading.plugin(extension, given)
    for extension in loading.chosen(loaded.tools, "tool"):
        await loading.tools_of(extension)
    hooks = HookRunner(loading.hooks, hook_seconds)
    config = await hooks.change("config", None, loaded.config.layer(), Config.model_validate)
    return Plugins(config or loaded.config, hooks, loading.tools, loading.statuses)


class _Loading:
    def __init__(self, project_code: bool) -> None:
        self._project_code = project_code
        self.hooks: list[NamedHooks] = []
        self.tools: dict[str, PluginTool] = {}
        self.statuses: list[ExtensionStatus] = []

    def chosen(self, extensions: Sequence[Extension], kind: ExtensionKind) -> list[Extension]:
        """One a name. What does not run takes the place of nothing: a project cannot switch the user's own plugin off."""
        allowed = []
        for extension in extensions:
            reason = self._reason_to_skip(extension)
            if reason:
                self._skip(extension, kind, reason)
            else:
                allowed.append(extension)
        return distinct(allowed)

    def _reason_to_skip(self, extension: Extension) -> str | None:
        if extension.path is not None and extension.path.suffix != ".py":
            return NOT_PYTHON
        return OF_PROJECT if extension.of_project and not self._project_code else None

    async def plugin(self, extension: Extension, given: PluginInput) -> None:
        loaded = await self._attempt(extension, "plugin", load_plugin(extension, given))
        if loaded is None:
            return
        self.hooks.append(NamedHooks(extension.name, loaded.hooks))
        self.tools.update(loaded.tools)
        if loaded.unknown:
            log.warning("plugin %s: this server has no such hooks: %s", extension.name, ", ".join(loaded.unknown))

    async def tools_of(self, extension: Extension) -> None:
        self.tools.update(await self._attempt(extension, "tool", load_tools(extension)) or {})

    async def _attempt(self, extension: Extension, kind: ExtensionKind, work: Awaitable[T]) -> T | None:
        try:
            loaded = await work
        except NotInstalled as error:
            self._skip(extension, kind, str(error))
            return None
        except Exception as error:
            log.error("%s %s was not loaded: %s", kind, extension.name, error_text(error), exc_info=error)
            self._note(extension, kind, "failed", f"{type(error).__name__}: {error}")
            return None
        self._note(extension, kind, "loaded")
        return loaded

    def _skip(self, extension: Extension, kind: ExtensionKind, reason: str) -> None:
        log.warning("%s %s is skipped: %s", kind, extension.name, reason)
        self._note(extension, kind, "skipped", reason)

    def _note(
        self, extension: Extension, kind: ExtensionKind, status: Literal["loaded", "skipped", "failed"], reason: str | None = None
    ) -> None:
        place = str(extension.path or extension.source)
        self.statuses.append(ExtensionStatus(name=extension.name, place=place, kind=kind, status=status, reason=reason))
