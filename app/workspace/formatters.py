"""The formatters of one directory: the well-known ones with OpenCode's conditions, as its configuration changes them. Whether a
formatter is used is evaluated anew for each file, because a project changes."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from app.project.config.flags import Flags
from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import FormatterConfig
from app.schema.project import FormatterStatus
from app.tools import process
from app.tools.command_output import CommandOutput
from app.util.project_files import above, find_program, has_marker, read_small

_WEB = """
.js .jsx .mjs .cjs .ts .tsx .mts .cts .html .htm .css .scss .sass .less .vue .svelte .json .jsonc .yaml .yml .toml .xml .md .mdx
.graphql .gql
"""
FORMAT_SECONDS = 10.0
PAUSE_SECONDS = 60.0
"""How long a formatter is left out after it took too long."""
_MAX_REASON = 500
log = logging.getLogger(__name__)
FormatterChoice = bool | Mapping[str, FormatterConfig] | None


def _dependencies(text: str) -> set[str]:
    """The dependencies in a package.json, or a similar file."""
    try:
        package: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return set()
    names = ("dependencies", "devDependencies", "require", "require-dev")
    found = [package.get(name) for name in names] if isinstance(package, Mapping) else []
    return {name for one in found if isinstance(one, Mapping) for name in one}


@dataclass(frozen=True, slots=True)
class FormatterKind:
    """`command`: its words, with `$FILE` for the file. The project has chosen it if it has one of the `markers` in the directory
    or above, or the `dependency`, as `file:package`; without both it always has. `unless`: markers of projects that another
    formatter is for. `preferred`: formatters instead of which it is not run, whatever their configuration. `trial`: words that
    its program must accept without an error."""

    name: str
    command: tuple[str, ...]
    extensions: tuple[str, ...]
    markers: tuple[str, ...] = ()
    dependency: str = ""
    unless: tuple[str, ...] = ()
    preferred: tuple["FormatterKind", ...] = ()
    trial: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_configured: bool = False
    """Run whatever the project says, even if its program is not found, so that the failure is reported."""

    def formats(self, path: Path) -> bool:
        return path.name.endswith(self.extensions)

    def is_used(self, directory: Path, top: Path) -> bool:
        places = list(above(directory / "file", top))
        if any(has_marker(place, self.unless, top) for place in places):
            return False
        if self.dependency:
            name, _, package = self.dependency.partition(":")
            return any(package in _dependencies(read_small(place / name, top)) for place in places)
        return not self.markers or any(has_marker(place, self.markers, top) for place in places)


def _kind(name: str, command: str, extensions: str, markers: str = "", **others: Any) -> FormatterKind:
    return FormatterKind(name, (*command.split(), "$FILE"), tuple(extensions.split()), tuple(markers.split()), **others)


_RUFF = _kind("ruff", "ruff format", ".py .pyi", "ruff.toml .ruff.toml requirements.txt:ruff pyproject.toml:ruff Pipfile:ruff")
_BLACK = _kind(
    "black",
    "black --quiet",
    ".py .pyi",
    "pyproject.toml:[tool.black] requirements.txt:black Pipfile:black",
    unless=_RUFF.markers,
)
_UV = _kind(
    "uv",
    "uv format --",
    ".py .pyi",
    preferred=(_RUFF, _BLACK),
    trial=("format", "--", "--help"),
    environment={"UV_OFFLINE": "1"},  # it would download ruff
)

WELL_KNOWN = (
    _kind("gofmt", "gofmt -w", ".go"),
    _kind("mix", "mix format", ".ex .exs .eex .heex .leex .neex .sface"),
    _kind("prettier", "prettier --write", _WEB, dependency="package.json:prettier"),
    _kind("oxfmt", "oxfmt", ".js .jsx .mjs .cjs .ts .tsx .mts .cts", dependency="package.json:oxfmt"),
    _kind("biome", "biome format --write", _WEB, "biome.json biome.jsonc .biome.json .biome.jsonc"),
    _kind("zig", "zig fmt", ".zig .zon"),
    _kind("clang-format", "clang-format -i", ".c .cc .cpp .cxx .c++ .h .hh .hpp .hxx .h++ .ino .C .H", ".clang-format"),
    _kind("ktlint", "ktlint -F", ".kt .kts"),
    _RUFF,
    _BLACK,
    _kind("air", "air format", ".R", "air.toml .air.toml"),
    _UV,
    _kind("rubocop", "rubocop --autocorrect", ".rb .rake .gemspec .ru"),
    _kind("standardrb", "standardrb --fix", ".rb .rake .gemspec .ru"),
    _kind("htmlbeautifier", "htmlbeautifier", ".erb .html.erb"),
    _kind("dart", "dart format", ".dart"),
    _kind("ocamlformat", "ocamlformat -i", ".ml .mli", ".ocamlformat"),
    _kind("terraform", "terraform fmt", ".tf .tfvars"),
    _kind("latexindent", "latexindent -w -s", ".tex"),
    _kind("gleam", "gleam format", ".gleam"),
    _kind("shfmt", "shfmt -w", ".sh .bash"),
    _kind("nixfmt", "nixfmt", ".nix"),
    _kind("rustfmt", "rustfmt", ".rs"),
    _kind("pint", "./vendor/bin/pint", ".php", dependency="composer.json:laravel/pint"),
    _kind("ormolu", "ormolu -i", ".hs"),
    _kind("cljfmt", "cljfmt fix --quiet", ".clj .cljs .cljc .edn"),
    _kind("dfmt", "dfmt -i", ".d"),
)


def configured(config: FormatterChoice) -> list[FormatterKind]:
    """The formatters that may be run; none for `false`."""
    if config is False:
        return []
    kinds = {kind.name: kind for kind in WELL_KNOWN}
    for name, entry in (config if isinstance(config, Mapping) else {}).items():
        if entry.disabled:
            kinds.pop(name, None)
        elif name in kinds or entry.command:
            kinds[name] = _changed(kinds.get(name) or FormatterKind(name, (), ()), entry)
    return list(kinds.values())


def _changed(kind: FormatterKind, entry: FormatterConfig) -> FormatterKind:
    kind = replace(kind, environment={**kind.environment, **entry.environment})
    if entry.extensions is not None:
        kind = replace(kind, extensions=tuple(entry.extensions))
    if not entry.command:
        return kind
    return replace(kind, command=tuple(entry.command), preferred=(), trial=(), is_configured=True)


@dataclass(eq=False)
class Formatters:
    """`environment`: the variables of this process that programs see."""

    _workspace: SandboxWorkspace
    _sandbox: Sandbox
    _environment: Mapping[str, str]
    _config: FormatterChoice
    _flags: Flags = field(default_factory=Flags)
    _tried: dict[str, bool] = field(default_factory=dict, init=False)
    _slow_until: dict[str, float] = field(default_factory=dict, init=False)
    _logged: set[str] = field(default_factory=set, init=False)

    @cached_property
    def _kinds(self) -> list[FormatterKind]:
        return configured(self._config)

    async def due(self, path: Path) -> list[FormatterKind]:
        """The formatters to run on this file, in order, with whole commands; only those that work."""
        kinds = [kind for kind in self._kinds if kind.formats(path)]
        found = await asyncio.to_thread(self._due, kinds, path) if kinds else []
        return [formatter for formatter in found if await self._works(formatter)]

    async def _works(self, formatter: FormatterKind) -> bool:
        """Whether its trial succeeded, which is made once."""
        if formatter.trial and formatter.name not in self._tried:
            trial = replace(formatter, command=formatter.trial)
            self._tried[formatter.name] = await self.run(trial, self._workspace) is None
        return self._tried.get(formatter.name, True)

    async def run(self, formatter: FormatterKind, workspace: SandboxWorkspace) -> str | None:
        """Runs it in the sandbox of the file's workspace. Returns the reason if it failed."""
        if time.monotonic() < self._slow_until.get(formatter.name, 0):
            return f"it took more than {FORMAT_SECONDS:g} seconds and is left out for a minute"
        output = CommandOutput()
        try:
            program = await asyncio.to_thread(
                self._sandbox.program, formatter.command, workspace, formatter.environment, shows_named=True
            )
            ended = await process.run(program, timeout=FORMAT_SECONDS, on_output=output.add)
        except OSError as error:
            return str(error)
        if ended.timed_out:
            self._slow_until[formatter.name] = time.monotonic() + PAUSE_SECONDS
            return f"it took more than {FORMAT_SECONDS:g} seconds"
        return None if ended.code == 0 else f"exit code {ended.code}: {_last(output.text())}"

    def failed(self, formatter: FormatterKind, reason: str) -> None:
        """Logs each formatter's failure once."""
        if formatter.name not in self._logged:
            self._logged.add(formatter.name)
            log.warning("the formatter %s of %s failed; said once: %s", formatter.name, self._workspace.directory, reason)

    async def statuses(self) -> list[FormatterStatus]:
        """Runs nothing: a formatter that has not been tried yet counts as working."""
        return await asyncio.to_thread(lambda: [self._status(kind) for kind in self._kinds])

    def _status(self, kind: FormatterKind) -> FormatterStatus:
        enabled = self._tried.get(kind.name, True) and self._command(kind) is not None
        return FormatterStatus(name=kind.name, extensions=list(kind.extensions), enabled=enabled)

    def _due(self, kinds: Sequence[FormatterKind], path: Path) -> list[FormatterKind]:
        found = ((kind, self._command(kind)) for kind in kinds)
        return [
            replace(
                kind,
                command=tuple(word.replace("$FILE", str(path)) for word in command),
                environment={**self._environment, **kind.environment},
                trial=(command[0], *kind.trial) if kind.trial else (),
            )
            for kind, command in found
            if command
        ]

    def _command(self, kind: FormatterKind) -> list[str] | None:
        """None if the project does not use the formatter, or its program is not found."""
        directories = self._workspace.real_directories()
        top, directory = directories[0], directories[-1]
        is_off = kind.name == "oxfmt" and not self._flags.experimental_oxfmt
        if not kind.is_configured and (is_off or not kind.is_used(directory, top)):
            return None
        if any(self._command(other) for other in kind.preferred):
            return None
        name, *arguments = kind.command
        path = self._environment.get("PATH")
        program = find_program(name, directory, top, path, is_configured=kind.is_configured)
        return [program or name, *arguments] if program or kind.is_configured else None


def _last(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text[-_MAX_REASON:]).strip()
