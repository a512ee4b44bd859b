"""The kinds of language servers: the well-known ones, and what a configuration makes of them. Nothing is ever downloaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.schema.config import LspConfig
from app.util.project_programs import above, find_program, has_file, text_of

Initialization = Callable[[Path, Path], Mapping[str, Any] | None]
"""Of a root and the checkout's top. None: the server cannot work there."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """`commands`: the first whose program is there. `extensions`: of its files; none: all files. `markers`: the nearest directory
    above a file that has one is its root; `name:text` for a file with this text. Without one it is the directory, or, if
    `strict`, there is no server. `unless`: markers of projects that another server is for."""

    id: str
    commands: tuple[tuple[str, ...], ...]
    extensions: tuple[str, ...]
    markers: tuple[str, ...] = ()
    strict: bool = False
    unless: tuple[str, ...] = ()
    initialization: Initialization = lambda root, top: {}
    env: Mapping[str, str] | None = None
    is_configured: bool = False
    """Its program is started where it is not found, too: that it fails is told."""

    def serves(self, path: Path) -> bool:
        return not self.extensions or path.suffix in self.extensions or path.name in self.extensions

    def root_of(self, path: Path, directory: Path, top: Path) -> Path | None:
        """None where it has nothing to do."""
        places = list(above(path, directory if path.is_relative_to(directory) else top))
        if any(_has(place, self.unless, top) for place in places):
            return None
        return next((place for place in places if _has(place, self.markers, top)), None if self.strict else directory)

    def command(self, root: Path, top: Path, search_path: str | None) -> list[str] | None:
        """With the program's absolute path: the project's own before that of `PATH`. None where none is there."""
        for name, *arguments in self.commands:
            if program := find_program(name, root, top, search_path):
                return [program, *arguments]
        return [*self.commands[0]] if self.is_configured else None


def _has(place: Path, markers: Sequence[str], top: Path) -> bool:
    return any(_is_marked(place, *marker.partition(":"), top) for marker in markers)


def _is_marked(place: Path, name: str, _: str, text: str, top: Path) -> bool:
    return has_file(place, name, top) and (not text or text in text_of(place / name, top))


def _python(root: Path, top: Path) -> Mapping[str, Any]:
    """The project's own interpreter, whose packages the code imports."""
    programs = (root / name / "bin/python" for name in (".venv", "venv"))
    return next(({"pythonPath": str(path)} for path in programs if path.exists()), {})


def _typescript(root: Path, top: Path) -> Mapping[str, Any] | None:
    """The project's TypeScript, without which its server has nothing to ask."""
    servers = (place / "node_modules/typescript/lib/tsserver.js" for place in above(root / "tsserver", top))
    return next(({"tsserver": {"path": str(path)}} for path in servers if path.exists()), None)


_LOCKS = ("package-lock.json", "bun.lockb", "bun.lock", "pnpm-lock.yaml", "yarn.lock")
_DENO = ("deno.json", "deno.jsonc")
_BIOME = ("biome.json", "biome.jsonc", ".biome.json", ".biome.jsonc")
_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "pyrightconfig.json")
_SCRIPTS = (".ts", ".tsx", ".js", ".jsx", ".mjs")
_MODULES = (*_SCRIPTS, ".cjs", ".mts", ".cts")
_C = (".c", ".cpp", ".cc", ".cxx", ".c++", ".h", ".hpp", ".hh", ".hxx", ".h++")
_BUILT = ("compile_commands.json", "compile_flags.txt", ".clangd", "CMakeLists.txt", "Makefile")
_JAVA = ("pom.xml", "build.gradle", "build.gradle.kts", ".project", ".classpath")
_KOTLIN = ("settings.gradle.kts", "settings.gradle", "gradlew", "build.gradle.kts", "build.gradle", "pom.xml")
_PIPES = "--stdio"

WELL_KNOWN = (
    ServerKind("deno", (("deno", "lsp"),), _SCRIPTS, _DENO, strict=True),
    ServerKind(
        "typescript", (("typescript-language-server", _PIPES),), _MODULES, _LOCKS, unless=_DENO, initialization=_typescript
    ),
    ServerKind("vue", (("vue-language-server", _PIPES),), (".vue",), _LOCKS),
    ServerKind("oxlint", (("oxc_language_server",),), (*_MODULES, ".vue", ".astro", ".svelte"), (".oxlintrc.json",), strict=True),
    ServerKind("biome", (("biome", "lsp-proxy", _PIPES),), (*_MODULES, ".json", ".jsonc", ".css"), _BIOME, strict=True),
    ServerKind("gopls", (("gopls",),), (".go",), ("go.work", "go.mod", "go.sum")),
    ServerKind("ruby-lsp", (("rubocop", "--lsp"),), (".rb", ".rake", ".gemspec", ".ru"), ("Gemfile",)),
    ServerKind(
        "pyright",
        (("pyright-langserver", _PIPES), ("basedpyright-langserver", _PIPES)),
        (".py", ".pyi"),
        _PYTHON,
        initialization=_python,
    ),
    ServerKind(
        "ruff", (("ruff", "server"),), (".py", ".pyi"), ("ruff.toml", ".ruff.toml", "pyproject.toml:[tool.ruff"), strict=True
    ),
    ServerKind("elixir-ls", (("elixir-ls",), ("language_server.sh",)), (".ex", ".exs"), ("mix.exs", "mix.lock")),
    ServerKind("zls", (("zls",),), (".zig", ".zon"), ("build.zig",)),
    ServerKind("csharp", (("csharp-ls",),), (".cs",), ("*.sln", "*.csproj", "global.json")),
    ServerKind("fsharp", (("fsautocomplete",),), (".fs", ".fsi", ".fsx"), ("*.sln", "*.fsproj", "global.json")),
    ServerKind("sourcekit-lsp", (("sourcekit-lsp",),), (".swift",), ("Package.swift", "*.xcodeproj", "*.xcworkspace")),
    ServerKind("rust", (("rust-analyzer",),), (".rs",), ("Cargo.toml", "Cargo.lock"), strict=True),
    ServerKind("clangd", (("clangd", "--background-index", "--clang-tidy"),), _C, _BUILT),
    ServerKind("svelte", (("svelteserver", _PIPES),), (".svelte",), _LOCKS),
    ServerKind("astro", (("astro-ls", _PIPES),), (".astro",), _LOCKS),
    ServerKind("jdtls", (("jdtls",),), (".java",), _JAVA, strict=True),
    ServerKind("kotlin-ls", (("kotlin-lsp", _PIPES),), (".kt", ".kts"), _KOTLIN),
    ServerKind("yaml-ls", (("yaml-language-server", _PIPES),), (".yaml", ".yml"), _LOCKS),
    ServerKind("lua-ls", (("lua-language-server",),), (".lua",), (".luarc.json", ".luarc.jsonc", ".luacheckrc", ".stylua.toml")),
    ServerKind("php intelephense", (("intelephense", _PIPES),), (".php",), ("composer.json", "composer.lock", ".php-version")),
    ServerKind("prisma", (("prisma", "language-server"),), (".prisma",), ("schema.prisma", "prisma/schema.prisma")),
    ServerKind("dart", (("dart", "language-server", "--lsp"),), (".dart",), ("pubspec.yaml", "analysis_options.yaml")),
    ServerKind("ocaml-lsp", (("ocamllsp",),), (".ml", ".mli"), ("dune-project", "dune-workspace", ".merlin", "opam")),
    ServerKind("bash", (("bash-language-server", "start"),), (".sh", ".bash", ".zsh", ".ksh")),
    ServerKind("terraform", (("terraform-ls", "serve"),), (".tf", ".tfvars"), (".terraform.lock.hcl", "terraform.tfstate")),
    ServerKind("texlab", (("texlab",),), (".tex", ".bib"), (".latexmkrc", "latexmkrc", ".texlabroot", "texlabroot")),
    ServerKind("dockerfile", (("docker-langserver", _PIPES),), (".dockerfile", "Dockerfile")),
    ServerKind("gleam", (("gleam", "lsp"),), (".gleam",), ("gleam.toml",)),
    ServerKind("clojure-lsp", (("clojure-lsp", "listen"),), (".clj", ".cljs", ".cljc", ".edn"), ("deps.edn", "project.clj")),
    ServerKind("nixd", (("nixd",),), (".nix",), ("flake.nix",)),
    ServerKind("tinymist", (("tinymist",),), (".typ", ".typc"), ("typst.toml",)),
    ServerKind("haskell-language-server", (("haskell-language-server-wrapper", "--lsp"),), (".hs",), ("stack.yaml", "*.cabal")),
)

_LANGUAGES = {
    ".bash": "shellscript", ".c": "c", ".clj": "clojure", ".cs": "csharp", ".ex": "elixir", ".exs": "elixir", ".fs": "fsharp",
    ".h": "c", ".hs": "haskell", ".js": "javascript", ".cjs": "javascript", ".mjs": "javascript", ".jsx": "javascriptreact",
    ".kt": "kotlin", ".kts": "kotlin", ".ml": "ocaml", ".mli": "ocaml", ".py": "python", ".pyi": "python", ".rb": "ruby",
    ".rs": "rust", ".sh": "shellscript", ".tex": "latex", ".ts": "typescript", ".cts": "typescript", ".mts": "typescript",
    ".tsx": "typescriptreact", ".typ": "typst", ".yml": "yaml", ".md": "markdown", ".cc": "cpp", ".cxx": "cpp", ".hpp": "cpp",
}  # fmt: skip
"""Where a language's name is not the extension."""


def language_of(path: Path) -> str:
    """As LSP names it."""
    return _LANGUAGES.get(path.suffix, path.suffix.removeprefix(".") or path.name.lower())


def configured(config: bool | Mapping[str, LspConfig] | None) -> list[ServerKind]:
    """What there is to start. `false`: nothing."""
    if config is False:
        return []
    kinds = {kind.id: kind for kind in WELL_KNOWN}
    for name, entry in (config if isinstance(config, Mapping) else {}).items():
        if entry.disabled or not entry.command:
            kinds.pop(name, None)
        else:
            kinds[name] = _changed(kinds.get(name) or ServerKind(name, (), ()), entry, entry.command)
    return list(kinds.values())


def _changed(kind: ServerKind, entry: LspConfig, command: Sequence[str]) -> ServerKind:
    return replace(
        kind,
        commands=(tuple(command),),
        extensions=kind.extensions if entry.extensions is None else tuple(entry.extensions),
        initialization=lambda root, top: entry.initialization,
        env=entry.env,
        is_configured=True,
        strict=False,
        unless=(),
    )
