"""The kinds of language servers: the well-known ones, as a configuration changes them. Nothing is ever downloaded."""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.project.config.flags import Flags
from app.schema.config import LspConfig
from app.util.project_files import above, find_program, has_marker

Initialization = Callable[[Path, Path], Mapping[str, Any] | None]
"""Takes a root and the checkout's top. None: the server cannot work there."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """`commands`: the first whose program is found is used. `extensions`: of its files; none: all files. `markers`: the root is
    the nearest directory above a file that has one. Without a marker the root is the directory, or, if `strict`, there is no
    server. `outer`: markers of a directory with several projects, which is the root
    instead. `unless`: markers of projects that another server is for."""

    id: str
    commands: tuple[tuple[str, ...], ...]
    extensions: tuple[str, ...]
    markers: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    strict: bool = False
    unless: tuple[str, ...] = ()
    initialization: Initialization = lambda root, top: {}
    env: Mapping[str, str] | None = None
    is_configured: bool = False
    """Started even if the program is not found, so that the failure is reported."""

    def serves(self, path: Path) -> bool:
        return not self.extensions or path.suffix in self.extensions or path.name in self.extensions

    def root_of(self, path: Path, directory: Path, top: Path) -> Path | None:
        """The root for a file; None if this kind has no server for it."""
        places = list(above(path, directory if path.is_relative_to(directory) else top))
        if any(has_marker(place, self.unless, top) for place in places):
            return None
        roots = (place for markers in (self.outer, self.markers) for place in places if has_marker(place, markers, top))
        return next(roots, None if self.strict else directory)

    def command(self, root: Path, top: Path, search_path: str | None) -> list[str] | None:
        """The command with the program's absolute path. None if no program is found."""
        for name, *arguments in self.commands:
            if program := find_program(name, root, top, search_path, is_configured=self.is_configured):
                return [program, *arguments]
        return [*self.commands[0]] if self.is_configured else None


def _python(root: Path, top: Path) -> Mapping[str, Any]:
    """The project's own interpreter, whose packages the code imports."""
    programs = (root / name / "bin/python" for name in (".venv", "venv"))
    return next(({"pythonPath": str(path)} for path in programs if os.path.exists(path)), {})  # noqa: PTH110  a Path may raise


def _installed(module: str, root: Path, top: Path) -> Path | None:
    """A file of a module in the project's `node_modules`."""
    found = (place / "node_modules" / module for place in above(root / "file", top))
    return next((path for path in found if os.path.exists(path)), None)  # noqa: PTH110  a Path may raise


def _typescript(root: Path, top: Path) -> Mapping[str, Any] | None:
    """The project's TypeScript, without which its server can do nothing."""
    path = _installed("typescript/lib/tsserver.js", root, top)
    return {"tsserver": {"path": str(path)}} if path else None


def _astro(root: Path, top: Path) -> Mapping[str, Any] | None:
    path = _installed("typescript/lib/tsserver.js", root, top)
    return {"typescript": {"tsdk": str(path.parent)}} if path else None


def _eslint(root: Path, top: Path) -> Mapping[str, Any] | None:
    """The project's ESLint, and the settings of an editor, without which its server does nothing."""
    if not _installed("eslint/package.json", root, top):
        return None
    return {
        "validate": "on",
        "run": "onType",
        "nodePath": "",
        "quiet": False,
        "onIgnoredFiles": "off",
        "experimental": {"useFlatConfig": False},
        "problems": {"shortenToSingleLine": False},
        "rulesCustomizations": [],
        "workingDirectory": {"mode": "location"},
        "workspaceFolder": {"uri": root.as_uri(), "name": "workspace"},
    }


def _kind(
    name: str, commands: str, extensions: str, markers: str = "", outer: str = "", unless: str = "", **others: Any
) -> ServerKind:
    """`commands`: separated by ` | `; the other texts by spaces."""
    programs = tuple(tuple(shlex.split(command)) for command in commands.split(" | "))
    names = {"markers": markers, "outer": outer, "unless": unless}
    places: dict[str, Any] = {field: tuple(text.split()) for field, text in names.items()}
    return ServerKind(name, programs, tuple(extensions.split()), **places, **others)


_LOCKS = "package-lock.json bun.lockb bun.lock pnpm-lock.yaml yarn.lock"
_DENO = "deno.json deno.jsonc"
_BIOME = "biome.json biome.jsonc .biome.json .biome.jsonc"
_PYTHON = "pyproject.toml setup.py setup.cfg requirements.txt Pipfile pyrightconfig.json"
_PYRIGHT = "pyright-langserver --stdio | basedpyright-langserver --stdio"
_SCRIPTS = ".ts .tsx .js .jsx .mjs"
_MODULES = f"{_SCRIPTS} .cjs .mts .cts"
_WEB = f"{_MODULES} .vue .astro .svelte"
_C = ".c .cpp .cc .cxx .c++ .h .hpp .hh .hxx .h++"
_BUILT = "compile_commands.json compile_flags.txt .clangd CMakeLists.txt Makefile"
_SOLUTION = "*.sln *.slnx global.json"
_JAVA = "pom.xml build.gradle build.gradle.kts .project .classpath"
_KOTLIN = "gradlew build.gradle.kts build.gradle pom.xml"
_GRADLE_SETTINGS = "settings.gradle.kts settings.gradle"
_LUA = ".luarc.json .luarc.jsonc .luacheckrc .stylua.toml stylua.toml selene.toml selene.yml"
_CLOJURE = "deps.edn project.clj shadow-cljs.edn bb.edn build.boot"
_HASKELL = "stack.yaml cabal.project hie.yaml *.cabal"
_JULIA = "julia --startup-file=no --history-file=no -e 'using LanguageServer; runserver()'"
_COMPOSER = "composer.json composer.lock .php-version"
_TFSTATE = ".terraform.lock.hcl terraform.tfstate *.tf"
_TERRAFORM = {"experimentalFeatures": {"prefillRequiredFields": True, "validateOnSave": True}}
_PHP = {"telemetry": {"enabled": False}}

WELL_KNOWN = (
    _kind("deno", "deno lsp", _SCRIPTS, _DENO, strict=True),
    _kind("typescript", "typescript-language-server --stdio", _MODULES, _LOCKS, unless=_DENO, initialization=_typescript),
    _kind("vue", "vue-language-server --stdio", ".vue", _LOCKS),
    _kind("eslint", "vscode-eslint-language-server --stdio", f"{_MODULES} .vue", _LOCKS, initialization=_eslint),
    _kind("oxlint", "oxc_language_server | oxlint --lsp", _WEB, f".oxlintrc.json {_LOCKS} package.json"),
    _kind("biome", "biome lsp-proxy --stdio", f"{_WEB} .json .jsonc .css .graphql .gql .html", f"{_BIOME} {_LOCKS}"),
    _kind("gopls", "gopls", ".go", "go.mod go.sum", outer="go.work"),
    _kind("ruby-lsp", "rubocop --lsp", ".rb .rake .gemspec .ru", "Gemfile"),
    _kind("ty", "ty server", ".py .pyi", f"{_PYTHON} ty.toml", initialization=_python),
    _kind("pyright", _PYRIGHT, ".py .pyi", _PYTHON, initialization=_python),
    _kind("ruff", "ruff server", ".py .pyi", "ruff.toml .ruff.toml pyproject.toml:[tool.ruff", strict=True),
    _kind("elixir-ls", "elixir-ls | language_server.sh", ".ex .exs", "mix.exs mix.lock"),
    _kind("zls", "zls", ".zig .zon", "build.zig"),
    _kind("csharp", "csharp-ls | roslyn-language-server --stdio --autoLoadProjects", ".cs .csx", f"*.csproj {_SOLUTION}"),
    _kind("fsharp", "fsautocomplete", ".fs .fsi .fsx .fsscript", f"*.fsproj {_SOLUTION}"),
    _kind("sourcekit-lsp", "sourcekit-lsp", ".swift .objc .objcpp", "Package.swift *.xcodeproj *.xcworkspace"),
    _kind("rust", "rust-analyzer", ".rs", "Cargo.toml Cargo.lock", outer="Cargo.toml:[workspace]", strict=True),
    _kind("clangd", "clangd --background-index --clang-tidy", _C, _BUILT),
    _kind("svelte", "svelteserver --stdio", ".svelte", _LOCKS),
    _kind("astro", "astro-ls --stdio", ".astro", _LOCKS, initialization=_astro),
    _kind("jdtls", "jdtls", ".java", _JAVA, strict=True),
    _kind("kotlin-ls", "kotlin-lsp --stdio", ".kt .kts", _KOTLIN, outer=_GRADLE_SETTINGS),
    _kind("yaml-ls", "yaml-language-server --stdio", ".yaml .yml", _LOCKS),
    _kind("lua-ls", "lua-language-server", ".lua", _LUA),
    _kind("php intelephense", "intelephense --stdio", ".php", _COMPOSER, initialization=lambda root, top: _PHP),
    _kind("prisma", "prisma language-server", ".prisma", "schema.prisma prisma/schema.prisma"),
    _kind("dart", "dart language-server --lsp", ".dart", "pubspec.yaml analysis_options.yaml"),
    _kind("ocaml-lsp", "ocamllsp", ".ml .mli", "dune-project dune-workspace .merlin opam"),
    _kind("bash", "bash-language-server start", ".sh .bash .zsh .ksh"),
    _kind("terraform", "terraform-ls serve", ".tf .tfvars", _TFSTATE, initialization=lambda root, top: _TERRAFORM),
    _kind("texlab", "texlab", ".tex .bib", ".latexmkrc latexmkrc .texlabroot texlabroot"),
    _kind("dockerfile", "docker-langserver --stdio", ".dockerfile Dockerfile"),
    _kind("gleam", "gleam lsp", ".gleam", "gleam.toml"),
    _kind("clojure-lsp", "clojure-lsp listen", ".clj .cljs .cljc .edn", _CLOJURE),
    _kind("nixd", "nixd", ".nix", "flake.nix"),
    _kind("tinymist", "tinymist", ".typ .typc", "typst.toml"),
    _kind("haskell-language-server", "haskell-language-server-wrapper --lsp", ".hs .lhs", _HASKELL),
    _kind("julials", _JULIA, ".jl", "Project.toml Manifest.toml *.jl"),
)

_LANGUAGES = {
    ".bash": "shellscript", ".c": "c", ".cc": "cpp", ".cjs": "javascript", ".clj": "clojure", ".cljc": "clojure",
    ".cljs": "clojure", ".cs": "csharp", ".csx": "csharp", ".cts": "typescript", ".cxx": "cpp", ".edn": "clojure",
    ".ex": "elixir", ".exs": "elixir", ".fs": "fsharp", ".fsi": "fsharp", ".fsx": "fsharp", ".gemspec": "ruby", ".h": "c",
    ".hpp": "cpp", ".hs": "haskell", ".jl": "julia", ".js": "javascript", ".jsx": "javascriptreact", ".ksh": "shellscript",
    ".kt": "kotlin", ".kts": "kotlin", ".lhs": "haskell", ".md": "markdown", ".mjs": "javascript", ".ml": "ocaml",
    ".mli": "ocaml", ".mts": "typescript", ".py": "python", ".pyi": "python", ".rake": "ruby", ".rb": "ruby", ".rs": "rust",
    ".ru": "ruby", ".sh": "shellscript", ".tex": "latex", ".tf": "terraform", ".tfvars": "terraform-vars", ".ts": "typescript",
    ".tsx": "typescriptreact", ".typ": "typst", ".typc": "typst", ".yml": "yaml", ".zon": "zig", ".zsh": "shellscript",
}  # fmt: skip
"""Languages whose name is not the extension."""


def language_of(path: Path) -> str:
    """The language's name in LSP."""
    return _LANGUAGES.get(path.suffix, path.suffix.removeprefix(".") or path.name.lower())


def configured(config: bool | Mapping[str, LspConfig] | None, flags: Flags) -> list[ServerKind]:
    """The kinds that may be started; none for `false`. `ty` replaces pyright if its flag is set."""
    if config is False:
        return []
    known = {kind.id: kind for kind in WELL_KNOWN}
    unwanted = "pyright" if flags.experimental_lsp_ty else "ty"
    kinds = {name: kind for name, kind in known.items() if name != unwanted}
    for name, entry in (config if isinstance(config, Mapping) else {}).items():
        if entry.disabled or not entry.command:
            kinds.pop(name, None)
        else:
            kinds[name] = _changed(known.get(name) or ServerKind(name, (), ()), entry, entry.command)
    return list(kinds.values())


def programs_found(
    config: bool | Mapping[str, LspConfig] | None, flags: Flags, directory: Path, top: Path, search_path: str | None
) -> dict[str, str | None]:
    """The program of each server that files in a directory can start, by id; None for a configured one that is not found."""
    real, top = directory.resolve(), top.resolve()
    found = {}
    for kind in configured(config, flags):
        root = kind.root_of(real / "file", real, top)
        command = kind.command(root, top, search_path) if root else None
        if root and command and kind.initialization(root, top) is not None:
            found[kind.id] = command[0] if shutil.which(command[0], path=search_path) else None
    return found


def _changed(kind: ServerKind, entry: LspConfig, command: Sequence[str]) -> ServerKind:
    return replace(
        kind,
        commands=(tuple(command),),
        extensions=kind.extensions if entry.extensions is None else tuple(entry.extensions),
        initialization=lambda root, top: entry.initialization or kind.initialization(root, top) or {},
        env=entry.env,
        is_configured=True,
        strict=False,
        unless=(),
    )
