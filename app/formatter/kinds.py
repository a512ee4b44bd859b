"""The kinds of formatters: the well-known ones with OpenCode's conditions, and what a configuration makes of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.config.flags import Flags
from app.schema.config import FormatterConfig
from app.util.project_files import above, has_file, text_of


@dataclass(frozen=True, slots=True)
class FormattedProject:
    """Where a project says which formatters it uses: from the directory up to the checkout's top."""

    directory: Path
    top: Path

    def has(self, *names: str) -> bool:
        return any(has_file(place, name, self.top) for place in self._places() for name in names)

    def says(self, text: str, *names: str) -> bool:
        """Whether a file with one of these names has the text."""
        return any(text in text_of(place / name, self.top) for place in self._places() for name in names)

    def depends(self, package: str, name: str = "package.json") -> bool:
        return any(package in _dependencies(text_of(place / name, self.top)) for place in self._places())

    def _places(self) -> list[Path]:
        return list(above(self.directory / "file", self.top))


def _dependencies(text: str) -> set[str]:
    """Of a package.json, or what is like one."""
    try:
        package: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return set()
    names = ("dependencies", "devDependencies", "require", "require-dev")
    found = [package.get(name) for name in names] if isinstance(package, Mapping) else []
    return {name for one in found if isinstance(one, Mapping) for name in one}


def _uses_ruff(project: FormattedProject) -> bool:
    return (
        project.has("ruff.toml", ".ruff.toml")
        or project.says("[tool.ruff", "pyproject.toml")
        or project.says("ruff", "requirements.txt", "pyproject.toml", "Pipfile")
    )


def _uses_black(project: FormattedProject) -> bool:
    named = project.says("[tool.black]", "pyproject.toml") or project.says("black", "requirements.txt", "Pipfile")
    return named and not _uses_ruff(project)


@dataclass(frozen=True, slots=True)
class FormatterKind:
    """`command`: its words, `$FILE` for the file. `is_used`: whether the project has chosen it. `unless`: those that come before
    it, whatever is configured of them. `trial`: words that its program must take without an error."""

    name: str
    command: tuple[str, ...]
    extensions: tuple[str, ...]
    is_used: Callable[[FormattedProject], bool] = lambda project: True
    unless: tuple["FormatterKind", ...] = ()
    trial: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_configured: bool = False
    """It is run whatever the project says, and where its program is not found, too: that it fails is told."""

    def formats(self, path: Path) -> bool:
        return path.name.endswith(self.extensions)


_WEB = """
.js .jsx .mjs .cjs .ts .tsx .mts .cts .html .htm .css .scss .sass .less .vue .svelte .json .jsonc .yaml .yml .toml .xml .md .mdx
.graphql .gql
"""


def _kind(name: str, command: str, extensions: str, is_used: Callable[[FormattedProject], bool] | None = None) -> FormatterKind:
    kind = FormatterKind(name, (*command.split(), "$FILE"), tuple(extensions.split()))
    return replace(kind, is_used=is_used) if is_used else kind


_RUFF = _kind("ruff", "ruff format", ".py .pyi", _uses_ruff)
_BLACK = _kind("black", "black --quiet", ".py .pyi", _uses_black)
_UV = replace(
    _kind("uv", "uv format --", ".py .pyi"),
    unless=(_RUFF, _BLACK),
    trial=("format", "--", "--help"),
    environment={"UV_OFFLINE": "1"},  # it would download ruff
)

WELL_KNOWN = (
    _kind("gofmt", "gofmt -w", ".go"),
    _kind("mix", "mix format", ".ex .exs .eex .heex .leex .neex .sface"),
    _kind("prettier", "prettier --write", _WEB, lambda project: project.depends("prettier")),
    _kind("oxfmt", "oxfmt", ".js .jsx .mjs .cjs .ts .tsx .mts .cts", lambda project: project.depends("oxfmt")),
    _kind(
        "biome",
        "biome format --write",
        _WEB,
        lambda project: project.has("biome.json", "biome.jsonc", ".biome.json", ".biome.jsonc"),
    ),
    _kind("zig", "zig fmt", ".zig .zon"),
    _kind(
        "clang-format",
        "clang-format -i",
        ".c .cc .cpp .cxx .c++ .h .hh .hpp .hxx .h++ .ino .C .H",
        lambda project: project.has(".clang-format"),
    ),
    _kind("ktlint", "ktlint -F", ".kt .kts"),
    _RUFF,
    _BLACK,
    _kind("air", "air format", ".R", lambda project: project.has("air.toml", ".air.toml")),
    _UV,
    _kind("rubocop", "rubocop --autocorrect", ".rb .rake .gemspec .ru"),
    _kind("standardrb", "standardrb --fix", ".rb .rake .gemspec .ru"),
    _kind("htmlbeautifier", "htmlbeautifier", ".erb .html.erb"),
    _kind("dart", "dart format", ".dart"),
    _kind("ocamlformat", "ocamlformat -i", ".ml .mli", lambda project: project.has(".ocamlformat")),
    _kind("terraform", "terraform fmt", ".tf .tfvars"),
    _kind("latexindent", "latexindent -w -s", ".tex"),
    _kind("gleam", "gleam format", ".gleam"),
    _kind("shfmt", "shfmt -w", ".sh .bash"),
    _kind("nixfmt", "nixfmt", ".nix"),
    _kind("rustfmt", "rustfmt", ".rs"),
    _kind("pint", "./vendor/bin/pint", ".php", lambda project: project.depends("laravel/pint", "composer.json")),
    _kind("ormolu", "ormolu -i", ".hs"),
    _kind("cljfmt", "cljfmt fix --quiet", ".clj .cljs .cljc .edn"),
    _kind("dfmt", "dfmt -i", ".d"),
)


def configured(config: bool | Mapping[str, FormatterConfig] | None, flags: Flags) -> list[FormatterKind]:
    """What there may be to run. `false`: nothing. oxfmt is used where its flag is set."""
    if config is False:
        return []
    kinds = {kind.name: kind for kind in WELL_KNOWN}
    if not flags.experimental_oxfmt:
        kinds["oxfmt"] = replace(kinds["oxfmt"], is_used=lambda project: False)
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
    return replace(kind, command=tuple(entry.command), unless=(), trial=(), is_configured=True)
