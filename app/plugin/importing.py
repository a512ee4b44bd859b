"""From a name in the configuration to code that runs: files, modules and entry points of Python."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from app.config.keys import Extension
from app.plugin import limits
from app.plugin.api import HOOK_NAMES, Hook, PluginInput, PluginTool
from app.util.project_files import anywhere, read_bytes

ENTRY_POINTS = "opensession.plugins"
LOAD_SECONDS = 30.0
"""To import a plugin's module, and again to call its function."""


class NotInstalled(Exception):
    """No Python code has that name. Most such names are OpenCode plugins."""


class BadExtension(Exception):
    """The code exists but does not have the required form."""


@dataclass(frozen=True)
class LoadedPlugin:
    hooks: Mapping[str, Hook]
    tools: Mapping[str, PluginTool] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """Keys that are no hook of this server."""


async def load_plugin(extension: Extension, given: PluginInput) -> LoadedPlugin:
    """Raises NotInstalled, BadExtension, TimeoutError, and whatever the plugin raises."""
    found = await limits.call(_import, extension, seconds=LOAD_SECONDS)
    function = getattr(found, "plugin", None) or found
    if not callable(function):
        raise BadExtension("it has no function `plugin`")
    return _read(await limits.call(function, given, seconds=LOAD_SECONDS))


async def load_tools(extension: Extension) -> dict[str, PluginTool]:
    """The tools of a file, by id: `tool` has the file's name, others `<file>_<name>`. Raises what load_plugin raises."""
    module = await limits.call(_import, extension, seconds=LOAD_SECONDS)
    exported = {name: value for name, value in vars(module).items() if not name.startswith("_") and _is_tool(value)}
    if not exported:
        raise BadExtension("it defines no tool: a `tool` with description, args and execute")
    return {extension.name if name == "tool" else f"{extension.name}_{name}": as_tool(value) for name, value in exported.items()}


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


def _read(hooks: Any) -> LoadedPlugin:
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
    """Compiles what stands in the file now and keeps no bytecode: that would change the folder, which is watched."""

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
