"""Loads the plugins and tool files of one configuration, from files, modules and entry points of Python. Failures are logged and
never raised."""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from app.project.config.keys import Extension, distinct
from app.project.config.loader import LoadedConfig
from app.schema.base import Wire
from app.schema.config import Config
from app.tools.plugins import runner
from app.tools.plugins.api import HOOK_NAMES, Hook, PluginInput, PluginTool
from app.tools.plugins.runner import HookRunner, error_text
from app.util.project_files import anywhere, read_bytes

ENTRY_POINTS = "opensession.plugins"
LOAD_SECONDS = 30.0
"""For importing a plugin's module, and again for calling its function."""

log = logging.getLogger(__name__)
ExtensionKind = Literal["plugin", "tool"]
LoadStatus = Literal["loaded", "skipped", "failed"]
OF_PROJECT = "it comes with the project, and code of projects runs only with OPENSESSION_PROJECT_PLUGINS=true"
NOT_PYTHON = "OpenCode's own plugins and tools are JavaScript, which this server does not run"


class NotInstalled(Exception):
    """No Python code has that name. Most such names are OpenCode plugins."""


class BadExtension(Exception):
    """The code exists but does not have the required form."""


@dataclass(frozen=True)
class LoadedPlugin:
    hooks: Mapping[str, Hook]
    tools: Mapping[str, PluginTool] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """Keys that are not hooks of this server."""


async def load_plugin(extension: Extension, given: PluginInput) -> LoadedPlugin:
    """Raises NotInstalled, BadExtension, TimeoutError, and whatever the plugin raises."""
    found = await runner.call(_import, extension, seconds=LOAD_SECONDS)
    function = getattr(found, "plugin", None) or found
    if not callable(function):
        raise BadExtension("it has no function `plugin`")
    return _validated(await runner.call(function, given, seconds=LOAD_SECONDS))


async def load_tools(extension: Extension) -> LoadedPlugin:
    """The tools of a file, by id: `tool` has the file's name, others `<file>_<name>`. Raises what load_plugin raises."""
    module = await runner.call(_import, extension, seconds=LOAD_SECONDS)
    exported = {name: value for name, value in vars(module).items() if not name.startswith("_") and _is_tool(value)}
    if not exported:
        raise BadExtension("it defines no tool: a `tool` with description, args and execute")
    ids = {name: extension.name if name == "tool" else f"{extension.name}_{name}" for name in exported}
    return LoadedPlugin({}, {ids[name]: as_tool(value) for name, value in exported.items()})


def as_tool(value: Any) -> PluginTool:
    """Raises BadExtension."""
    if isinstance(value, PluginTool):
        return value
    try:
        return PluginTool(value["description"], value.get("args", {}), value["execute"])
    except (KeyError, TypeError, AttributeError) as error:
        raise BadExtension("a tool has a description, args and execute") from error


def _is_tool(value: Any) -> bool:
    return isinstance(value, PluginTool) or (isinstance(value, dict) and {"description", "execute"} <= value.keys())


def _validated(hooks: Any) -> LoadedPlugin:
    if hooks is None:
        return LoadedPlugin({})
    if not isinstance(hooks, Mapping):
        raise BadExtension(f"its function must return a mapping of hooks, not {type(hooks).__name__}")
    known = {name: hooks[name] for name in HOOK_NAMES & hooks.keys()}
    wrong = [name for name, hook in known.items() if not callable(hook)]
    if wrong:
        raise BadExtension(f"its hook {wrong[0]} is not a function")
    tools = {str(name): as_tool(value) for name, value in (hooks.get("tool") or {}).items()}
    return LoadedPlugin(known, tools, tuple(sorted(map(str, hooks.keys() - HOOK_NAMES - {"tool"}))))


# Importing.


def _import(extension: Extension) -> Any:
    if extension.path is not None:
        return _import_file(extension.path)
    for entry_point in metadata.entry_points(group=ENTRY_POINTS, name=extension.source):
        return entry_point.load()
    if _is_module(extension.source):
        return importlib.import_module(extension.source)
    raise NotInstalled(
        f"no Python module or entry point {extension.source!r} is installed here; OpenCode's own plugins, packages of npm, are "
        "JavaScript, which this server does not run"
    )


def _is_module(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class _SourceLoader(SourceFileLoader):
    """Compiles the file as it is now and keeps no bytecode, which would change the folder, which is watched."""

    def get_code(self, fullname: str) -> CodeType:
        source = read_bytes(self.path, anywhere)
        if source is None:
            raise BadExtension(f"there is no file {self.path}")
        return self.source_to_code(source, self.path)


def _import_file(path: Path) -> Any:
    name = f"opensession_extension_{path.stem}_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    if spec is None or spec.loader is None or not path.is_file():
        raise BadExtension(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    spec.loader.exec_module(module)
    return module


class ExtensionStatus(Wire):
    """How the loading of a plugin or tool file ended. `place`: its file, or its name in the configuration."""

    name: str
    place: str
    kind: ExtensionKind
    status: LoadStatus
    reason: str | None = None


@dataclass(frozen=True)
class Plugins:
    """`config` is the configuration as the plugins' `config` hooks left it; `tools` are by id."""

    config: Config
    hooks: HookRunner = field(default_factory=HookRunner)
    tools: Mapping[str, PluginTool] = field(default_factory=dict)
    statuses: Sequence[ExtensionStatus] = ()


async def load_all(loaded: LoadedConfig, given: PluginInput, *, project_code: bool, hook_seconds: float) -> Plugins:
    """`project_code`: load plugins and tools of the project itself too."""
    loading = _Loading(project_code)
    for extension in loading.chosen(loaded.plugins, "plugin"):
        await loading.load(extension, "plugin", load_plugin(extension, given))
    for extension in loading.chosen(loaded.tools, "tool"):
        await loading.load(extension, "tool", load_tools(extension))
    hooks = HookRunner(loading.hooks, hook_seconds)
    config = await hooks.change("config", None, loaded.config.layer(), Config.model_validate)
    return Plugins(config or loaded.config, hooks, loading.tools, loading.statuses)


class _Loading:
    def __init__(self, project_code: bool) -> None:
        self._project_code = project_code
        self.hooks: list[tuple[str, Mapping[str, Hook]]] = []
        self.tools: dict[str, PluginTool] = {}
        self.statuses: list[ExtensionStatus] = []

    def chosen(self, extensions: Sequence[Extension], kind: ExtensionKind) -> list[Extension]:
        """One per name. An extension that is skipped replaces nothing: a project cannot switch the user's own plugin off."""
        allowed = []
        for extension in extensions:
            if extension.path is not None and extension.path.suffix != ".py":
                self._skip(extension, kind, NOT_PYTHON)
            elif extension.of_project and not self._project_code:
                self._skip(extension, kind, OF_PROJECT)
            else:
                allowed.append(extension)
        return distinct(allowed)

    async def load(self, extension: Extension, kind: ExtensionKind, work: Awaitable[LoadedPlugin]) -> None:
        try:
            loaded = await work
        except NotInstalled as error:
            self._skip(extension, kind, str(error))
            return
        except Exception as error:
            log.error("%s %s was not loaded: %s", kind, extension.name, error_text(error), exc_info=error)
            self._note(extension, kind, "failed", f"{type(error).__name__}: {error}")
            return
        self._note(extension, kind, "loaded")
        self.hooks.append((extension.name, loaded.hooks))
        self.tools.update(loaded.tools)
        if loaded.unknown:
            log.warning("plugin %s: this server has no such hooks: %s", extension.name, ", ".join(loaded.unknown))

    def _skip(self, extension: Extension, kind: ExtensionKind, reason: str) -> None:
        log.warning("%s %s is skipped: %s", kind, extension.name, reason)
        self._note(extension, kind, "skipped", reason)

    def _note(self, extension: Extension, kind: ExtensionKind, status: LoadStatus, reason: str | None = None) -> None:
        place = str(extension.path or extension.source)
        self.statuses.append(ExtensionStatus(name=extension.name, place=place, kind=kind, status=status, reason=reason))
