"""Reads and merges all layers of a directory's configuration. Writes nothing. From the lowest precedence up:

remote · global files · OPENCODE_CONFIG · project .jsonc then .json, outermost first · OPENCODE_CONFIG_CONTENT ·
config directories
"""

import getpass
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import resources
from pathlib import Path
from typing import Any

from app.project.config import markdown
from app.project.config.errors import ConfigInvalidError
from app.project.config.flags import Flags
from app.project.config.keys import PLUGIN_SUFFIXES, Extension, distinct, unused_keys
from app.project.config.parse import (
    MAX_ALL_VALUES,
    Substitution,
    deep_merge,
    has_too_many_values,
    merge_layer,
    parse_layer,
    parse_literal,
    programs_apart,
    servers_apart,
    validate,
)
from app.project.config.sources import ConfigDirectory, ConfigStamp, ConfigWatch, ascend, config_directories, essential
from app.schema.config import Config, with_legacy_tools
from app.schema.errors import ServiceError
from app.schema.model import Skill
from app.util import environment
from app.util.project_files import ProjectBounds, resolved

_ALL_LAYERS = "the merged configuration"
MAX_MCP_SERVERS = 100
"""Each may be a program, which takes three descriptors of this process."""


@dataclass(frozen=True)
class SplitConfig:
    """The configuration merged separately: from the operator's layers, and from the project's files."""

    of_operator: Mapping[str, Any]
    of_project: Mapping[str, Any]


@dataclass(frozen=True)
class LoadedConfig:
    """`directories`: where agents, commands, skills and tools are looked for, lowest first. `warnings`: files that were skipped.
    `plugins` and `tools`: all that are named or found, lowest first, also several of one name. `unused`: keys without effect
    here, with the reasons. `watched`: the paths that were looked at, with the stat of each. `environ`: the variables for
    `{env:}`. `split`: the merged layers of each side, if the project is not trusted."""

    config: Config
    directories: list[Path]
    skills: list[Skill]
    warnings: list[ServiceError]
    plugins: list[Extension]
    tools: list[Extension]
    watched: Mapping[str, ConfigStamp]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    unused: Mapping[str, str] = field(default_factory=dict)
    split: SplitConfig | None = None


def load(
    directory: Path,
    worktree: Path,
    flags: Flags,
    remote: Sequence[Mapping[str, Any]] | None = None,
    environ: Mapping[str, str] = os.environ,
    bounds: ProjectBounds | None = None,
) -> LoadedConfig:
    """`remote`: the result of `fetch_well_known`. `bounds`: where the project's own files lie. Without its `trusted` they may not
    name the server's variables and files outside of the project, and change no part of an MCP server of the operator's. Raises
    ConfigJsonError, ConfigInvalidError."""
    upward = [] if flags.disable_project_config else ascend(directory, worktree)
    bounds = bounds or ProjectBounds.of(directory, worktree)
    loader = _Loader(directory, upward, flags, environ, bounds)
    layers = [loader.narrowed(layer) for layer in (*map(_Layer, remote or []), *loader.layers())]
    _require_few_values([layer.content for layer in layers])
    split = None if bounds.trusted else _split(layers)
    merged = _merged(layers)
    if len(merged.get("mcp", ())) > MAX_MCP_SERVERS:
        raise ConfigInvalidError(_ALL_LAYERS, f"mcp has more than {MAX_MCP_SERVERS} servers")
    if split is not None:
        merged |= _programs(split, merged.keys())
    finished = finish(merged, flags)
    _require_few_values([finished.get("permission")] * len(finished["agent"]))
    config = validate(Config, finished, _ALL_LAYERS)
    plugins = [Extension(place, layer.of_project) for layer in layers for place in layer.content.get("plugin", [])]
    loader.watch(extension.path for extension in (*plugins, *loader.tools))
    skills = loader.skills(layers)
    found = ([place.path for place in loader.present], skills, loader.all_warnings(), plugins, loader.tools)
    watched, unused = essential(loader.stamps), unused_keys(merged)
    return LoadedConfig(config, *found, watched=watched, environ=environ, unused=unused, split=split)


def _require_few_values(values: list[Any]) -> None:
    """Raises ConfigInvalidError. Agents of a project's with many rules would hold the event loop for minutes."""
    if has_too_many_values(values, MAX_ALL_VALUES):
        reason = f"it has more than {MAX_ALL_VALUES} values, or its agents as many rules together"
        raise ConfigInvalidError(_ALL_LAYERS, reason)


def load_global(environ: Mapping[str, str] = os.environ) -> Config:
    """The user's own global configuration, without any project's and without defaults. Raises as `load` does."""
    place = environment.opencode_config_dir()
    loader = _Loader(place, [], Flags(), environ, ProjectBounds.of(place, place))
    return validate(Config, _merged(loader.global_layers()), str(place))


@dataclass(frozen=True)
class _Layer:
    """`path`: the file of the content, for warnings; known of all files of the project."""

    content: Mapping[str, Any]
    of_project: bool = False
    path: Path | None = None


def _merged(layers: Iterable[_Layer]) -> dict[str, Any]:
    return reduce(lambda merged, layer: merge_layer(merged, layer.content), layers, {})


def _programs(split: SplitConfig, named: Collection[str]) -> dict[str, Any]:
    """The `named` sections that start programs: no entry mixes the operator's fields with the project's."""
    rules = {"mcp": servers_apart, "lsp": programs_apart, "formatter": programs_apart}
    both = (split.of_operator, split.of_project)
    return {key: rule(*(side.get(key, {}) for side in both)) for key, rule in rules.items() if key in named}


def _split(layers: Sequence[_Layer]) -> SplitConfig:
    operators, projects = ([layer for layer in layers if layer.of_project is project] for project in (False, True))
    return SplitConfig(_merged(operators), _merged(projects))


class _Loader:
    """Three readers: `_own` for the user's files, anywhere; `_project` for the project's; `_named` for files that these name."""

    def __init__(
        self, directory: Path, upward: Sequence[Path], flags: Flags, environ: Mapping[str, str], bounds: ProjectBounds
    ) -> None:
        """`upward`: the directories whose own files are read, from `directory` on."""
        self.warnings: list[ServiceError] = []
        self.present: list[ConfigDirectory] = []
        self.tools: list[Extension] = []
        self._project_directory = directory
        self._upward = upward
        self._flags = flags
        self._bounds = bounds
        self._own = ConfigWatch()
        self.stamps = self._own.stamps
        self._project = ConfigWatch(bounds.hold_configuration, self.stamps)
        self._named = ConfigWatch(bounds.may_name, self.stamps)
        self._values = Substitution(environ, self._own.read)
        self._project_values = Substitution(environ if bounds.trusted else {}, self._named.read)

    def watch(self, places: Iterable[Path | None]) -> None:
        """A change of one of `places` reloads the configuration."""
        for path in filter(None, places):
            self._own.exists(path)

    def _reader_for(self, of_project: bool) -> ConfigWatch:
        return self._project if of_project else self._own

    def all_warnings(self) -> list[ServiceError]:
        """The warnings, and one for each file that was refused."""
        refused = {str(error): error for watch in (self._own, self._project, self._named) for error in watch.refused}
        return [*self.warnings, *(ConfigInvalidError(error.path, error.reason) for error in refused.values())]

    def global_layers(self) -> Iterator[_Layer]:
        place = environment.opencode_config_dir()
        for name in ("config.json", "opencode.json", "opencode.jsonc"):
            yield _Layer(self._file(place / name))
        yield _Layer(self._legacy_toml(place / "config"))

    def layers(self) -> Iterator[_Layer]:
        """All layers; a later one overrides an earlier one."""
        yield from self.global_layers()
        if self._flags.config:
            custom = Path(self._flags.config).absolute()
            if not self._own.exists(custom):
                self.warnings.append(ConfigInvalidError(str(custom), "OPENCODE_CONFIG names this file, and it does not exist"))
            yield _Layer(self._file(custom))
        for path in (place / name for name in ("opencode.jsonc", "opencode.json") for place in reversed(self._upward)):
            yield _Layer(self._file(path, of_project=True), of_project=True, path=path)
        if self._flags.config_content:
            yield _Layer(parse_literal(self._flags.config_content, "OPENCODE_CONFIG_CONTENT"))
        for directory in config_directories(self._upward, self._flags):
            yield from self._directory(directory)

    def narrowed(self, layer: _Layer) -> _Layer:
        """The layer without what the project's own files may not say."""
        if not layer.of_project:
            return layer
        content = self._with_closed_sandbox(layer.content, layer.path)
        if not self._bounds.trusted:
            content = self._with_inside_instructions(_without_variables(content), layer.path)
        return _Layer(content, of_project=True)

    def _with_closed_sandbox(self, content: Mapping[str, Any], path: Path | None) -> Mapping[str, Any]:
        """The project's files may close the sandbox, not open it: sandboxed commands can write these files."""
        wanted = content.get("sandbox")
        if not wanted:
            return content
        kept = {key: value for key, value in wanted.items() if key == "network" and value is False}
        for key in wanted.keys() - kept:
            message = f"sandbox.{key} opens the sandbox: put it into your own configuration, ~/.config/opencode/opencode.json"
            self.warnings.append(ConfigInvalidError(str(path), message))
        return {**content, "sandbox": kept}

    def _with_inside_instructions(self, content: Mapping[str, Any], path: Path | None) -> Mapping[str, Any]:
        """Without patterns that begin outside the project. Absolute ones become relative: what these find is kept inside."""
        if "instructions" not in content:
            return content
        kept = []
        for pattern in content["instructions"]:
            place = environment.expand_path(pattern)
            if place == Path(pattern) and not place.is_absolute():  # relative to the project, or a page's address
                kept.append(pattern)
            elif self._bounds.may_name(resolved(place)):
                kept.append(os.path.relpath(place, self._project_directory))
            else:
                message = f"instructions of the project name what is outside of it: {pattern}"
                self.warnings.append(ConfigInvalidError(str(path), message))
        return {**content, "instructions": kept}

    def _file(self, path: Path, *, of_project: bool = False) -> dict[str, Any]:
        text = self._reader_for(of_project).read(path)
        if text is None:
            return {}
        layer = parse_layer(text, str(path), path.parent, self._project_values if of_project else self._values)
        return {**layer, "plugin": [_plugin_place(name, path.parent) for name in layer["plugin"]]} if "plugin" in layer else layer

    def _legacy_toml(self, path: Path) -> dict[str, Any]:
        """The global `config` file of OpenCode's first versions, where `provider` and `model` were two keys."""
        text = self._own.read(path)
        if text is None:
            return {}
        import tomllib

        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigInvalidError(str(path), f"is not TOML: {error}") from error
        provider, model = found.pop("provider", None), found.pop("model", None)
        model_name = {"model": f"{provider}/{model}"} if provider and model else {}
        return validate(Config, {**found, **model_name}, str(path)).layer()

    def _directory(self, directory: ConfigDirectory) -> Iterator[_Layer]:
        place, reader = directory.path, self._reader_for(directory.of_project)
        if not reader.exists(place):
            return
        self.present.append(directory)
        folders = reader.folders(place)
        for path in directory.files:
            yield _Layer(self._file(path, of_project=directory.of_project), directory.of_project, path)
        for content in markdown.layers(reader, place, folders, self.warnings):
            yield _Layer(content, directory.of_project)
        yield _Layer({"plugin": self._code_files(reader, place, folders & {"plugin", "plugins"})}, directory.of_project)
        tools = self._code_files(reader, place, folders & {"tool", "tools"})
        self.tools += [Extension(file, directory.of_project) for file in tools]

    def _code_files(self, reader: ConfigWatch, place: Path, folders: set[str]) -> list[str]:
        found = (path for folder in sorted(folders) for path in reader.files(place / folder, deep=False))
        return [path.as_uri() for path in found if path.suffix in PLUGIN_SUFFIXES]

    def skills(self, layers: Iterable[_Layer]) -> list[Skill]:
        """One per name; the later one wins."""
        found = (
            skill for reader, folder in self._skill_folders(layers) for skill in markdown.skills(reader, folder, self.warnings)
        )
        return list({skill.name: skill for skill in found}.values())

    def _skill_folders(self, layers: Iterable[_Layer]) -> Iterator[tuple[ConfigWatch, Path]]:
        """Those of Claude Code, those of the configuration's directories, and those that `skills.paths` of each layer names."""
        home = environment.home()
        for folder in () if self._flags.disable_claude_code_skills else dict.fromkeys([*self._upward, home]):
            yield self._reader_for(folder != home), folder / ".claude" / "skills"
        for directory in self.present:
            reader = self._reader_for(directory.of_project)
            folders = reader.folders(directory.path)
            yield from ((reader, directory.path / name) for name in ("skill", "skills") if name in folders)
        for layer in layers:
            for name in layer.content.get("skills", {}).get("paths", ()):
                place = environment.expand_path(name, self._project_directory)
                if layer.of_project and not self._bounds.may_name(resolved(place)):
                    message = "skills.paths of the project names a folder outside of it"
                    self.warnings.append(ConfigInvalidError(str(place), message))
                else:
                    yield self._named if layer.of_project else self._own, place


def _without_variables(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The project may not say which variable holds a provider's key."""
    if "provider" not in content:
        return content
    providers = content["provider"].items()
    entries = {id_: {key: value for key, value in entry.items() if key != "env"} for id_, entry in providers}
    return {**content, "provider": entries}


def _plugin_place(plugin: str, base: Path) -> str:
    """The plugin as a `file://` address, if it is a path: relative to `base`, the folder of the file that names it."""
    if plugin.startswith("file://"):
        return plugin
    if plugin.startswith("~/"):
        return (environment.home() / plugin[2:]).as_uri()
    is_path = plugin.startswith(("./", "../", "/")) or plugin.endswith(".py")
    return Path(resolved(base / plugin) or base / plugin).as_uri() if is_path else plugin


def finish(merged: Mapping[str, Any], flags: Flags) -> dict[str, Any]:
    """The merged layers with legacy forms rewritten, flags applied over them and defaults below them."""
    config = dict(merged)
    modes = {name: {**mode, "mode": "primary"} for name, mode in config.get("mode", {}).items()}
    config["agent"] = deep_merge(config.get("agent", {}), modes)
    permission = deep_merge(config.get("permission", {}), _flag_permission(flags))
    if permission := with_legacy_tools(permission, config.get("tools", {})):
        config["permission"] = permission
    config["plugin"] = [plugin.source for plugin in distinct(map(Extension, config.get("plugin", [])))]
    config["keybinds"] = {**_default_keybinds(), **config.get("keybinds", {})}
    if config.get("autoshare") and "share" not in config:
        config["share"] = "auto"
    forced = {"auto": flags.disable_autocompact, "prune": flags.disable_prune}
    off = {key: False for key, disabled in forced.items() if disabled}
    if off:
        config["compaction"] = {**config.get("compaction", {}), **off}
    return {"username": _username(), "mode": {}, "command": {}, **config}


def _flag_permission(flags: Flags) -> dict[str, Any]:
    if not flags.permission:
        return {}
    layer = parse_literal(f'{{"permission": {flags.permission}\n}}', "OPENCODE_PERMISSION")
    return dict(layer["permission"])


@cache
def _default_keybinds() -> dict[str, str]:
    """The keybinds of OpenCode's terminal client, which reads them from the server."""
    found: dict[str, str] = json.loads(resources.files(__package__).joinpath("keybinds.json").read_text())
    return found


@cache
def _username() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
