"""Which formatters and language servers there are for a project, where each works, and which program it is."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from git_files import put_file
from own_announcements import OwnAnnouncements

from app.project.config.flags import Flags
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import FormatterConfig, LspConfig
from app.workspace.formatters import Formatters
from app.workspace.lsp import servers as lsp_servers
from app.workspace.lsp.kinds import ServerKind, configured
from app.workspace.lsp.servers import LanguageServers, LspSettings

OXFMT = Flags(experimental_oxfmt=True)
TY = Flags(experimental_lsp_ty=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    put_file(path, text).chmod(0o755)
    return path


async def due(project: Path, name: str, config: dict[str, Any] | None = None, flags: Flags = Flags()) -> dict[str, list[str]]:
    """By name the words of those that a file is due to; on PATH is what lies in `bin` beside the project."""
    entries = {each: FormatterConfig.model_validate(entry) for each, entry in (config or {}).items()}
    environment = {"PATH": f"{project.parent / 'bin'}"}
    formatters = Formatters(SandboxWorkspace(project, Path("/")), OFF, environment, entries, flags)
    found = {one.name: list(one.command) for one in await formatters.due(project / name)}
    enabled = {one.name for one in await formatters.statuses() if one.enabled}
    assert found.keys() <= enabled
    return found


async def test_uv_formats_where_the_project_has_neither_ruff_nor_black_and_it_need_not_download(project: Path) -> None:
    uv = program(project.parent / "bin" / "uv", '#!/bin/sh\n[ "$UV_OFFLINE" = 1 ] || exit 9\n')
    assert await due(project, "a.py") == {"uv": [str(uv), "format", "--", str(project / "a.py")]}
    put_file(project / "ruff.toml", "")
    assert list(await due(project, "a.py")) == ["uv"], "as ruff itself is not there"
    ruff = program(project.parent / "bin" / "ruff")
    assert list(await due(project, "a.py")) == ["ruff"]
    assert await due(project, "a.py", {"ruff": {"disabled": True}}) == {}
    ruff.unlink()
    program(uv, "#!/bin/sh\nexit 2\n")
    assert await due(project, "a.py") == {}
    assert list(await due(project, "a.py", {"uv": {"command": ["uv", "format", "--", "$FILE"], "extensions": [".py"]}})) == ["uv"]


async def test_oxfmt_formats_where_its_flag_is_set_and_the_project_has_it(project: Path) -> None:
    own = program(project / "node_modules" / ".bin" / "oxfmt")
    assert await due(project, "a.ts", flags=OXFMT) == {}
    put_file(project / "package.json", json.dumps({"devDependencies": {"oxfmt": "1"}}))
    assert await due(project, "a.ts", flags=OXFMT) == {"oxfmt": [str(own), str(project / "a.ts")]}
    assert await due(project, "a.ts") == {}


async def test_a_configured_program_is_not_the_projects(project: Path) -> None:
    program(project / "node_modules" / ".bin" / "tidy")
    config = {"tidy": {"command": ["tidy", "$FILE"], "extensions": [".x"]}}
    assert await due(project, "a.x", config) == {"tidy": ["tidy", str(project / "a.x")]}
    there = program(project.parent / "bin" / "tidy")
    assert await due(project, "a.x", config) == {"tidy": [str(there), str(project / "a.x")]}
    config["tidy"]["command"] = ["node_modules/.bin/tidy", "$FILE"]
    assert await due(project, "a.x", config) == {"tidy": [str(project / "node_modules/.bin/tidy"), str(project / "a.x")]}


# Language servers.


def kinds(config: dict[str, Any] | None = None, flags: Flags = Flags()) -> dict[str, ServerKind]:
    entries = {name: LspConfig.model_validate(entry) for name, entry in (config or {}).items()}
    return {kind.id: kind for kind in configured(entries, flags)}


def test_ty_takes_the_place_of_pyright_where_its_flag_is_set() -> None:
    assert "ty" not in kinds() and "pyright" in kinds()
    assert "ty" in kinds(flags=TY) and "pyright" not in kinds(flags=TY)
    wanted = kinds({"ty": {"command": ["ty", "server"]}})
    assert wanted["ty"].extensions == (".py", ".pyi") and "pyright" in wanted


@pytest.mark.parametrize(
    ("name", "outer", "text", "inner"),
    [
        ("gopls", "go.work", "", "go.mod"),
        ("rust", "Cargo.toml", "[workspace]\n", "Cargo.toml"),
        ("kotlin-ls", "settings.gradle", "", "build.gradle"),
    ],
)
def test_what_holds_several_projects_has_one_server(tmp_path: Path, name: str, outer: str, text: str, inner: str) -> None:
    kind, file = kinds()[name], tmp_path / "a" / "src" / "file"
    put_file(tmp_path / "a" / inner, "")
    assert kind.root_of(file, tmp_path, tmp_path) == tmp_path / "a"
    put_file(tmp_path / outer, text)
    assert kind.root_of(file, tmp_path, tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [("eslint", "eslint/package.json"), ("typescript", "typescript/lib/tsserver.js"), ("astro", "typescript/lib/tsserver.js")],
)
def test_a_server_of_a_library_is_there_where_the_project_has_the_library(tmp_path: Path, name: str, file: str) -> None:
    assert kinds()[name].initialization(tmp_path / "a", tmp_path) is None
    put_file(tmp_path / "node_modules" / file, "")
    assert kinds()[name].initialization(tmp_path / "a", tmp_path)


def test_a_configured_program_is_not_the_projects_and_gets_what_is_configured(tmp_path: Path) -> None:
    program(tmp_path / "node_modules/.bin/eslint-server")
    path = str(program(tmp_path / "bin" / "eslint-server").parent)
    put_file(tmp_path / "node_modules/eslint/package.json", "")
    kind = kinds({"eslint": {"command": ["eslint-server", "--x"]}})["eslint"]
    assert kind.command(tmp_path, tmp_path, path) == [f"{path}/eslint-server", "--x"]
    assert kind.command(tmp_path, tmp_path, "") == ["eslint-server", "--x"]
    assert kind.initialization(tmp_path, tmp_path)["validate"] == "on"
    own = kinds({"eslint": {"command": ["./node_modules/.bin/eslint-server"], "initialization": {"a": 1}}})["eslint"]
    assert own.command(tmp_path, tmp_path, "") == [str(tmp_path / "node_modules/.bin/eslint-server")]
    assert own.initialization(tmp_path, tmp_path) == {"a": 1}


def test_a_well_known_program_is_the_projects_before_any_other(tmp_path: Path) -> None:
    own = program(tmp_path / "node_modules/.bin/oxlint")
    other = program(tmp_path / "bin" / "oxc_language_server")
    kind = kinds()["oxlint"]
    assert kind.command(tmp_path / "a", tmp_path, "") == [str(own), "--lsp"]
    assert kind.command(tmp_path / "a", tmp_path, str(other.parent)) == [str(other)]


async def test_a_server_that_was_not_found_is_looked_for_every_ten_seconds(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LspSettings({"PATH": f"{project.parent / 'bin'}"}, OFF, OwnAnnouncements().announce)
    servers = LanguageServers(SandboxWorkspace(project, Path("/")), settings, None)
    servers.start()
    for seconds in (100.0, 111.0):
        monkeypatch.setattr(lsp_servers, "time", SimpleNamespace(monotonic=lambda now=seconds: now))
        assert (await servers.serving(project / "a.go"))[1] == []
    program(project.parent / "bin" / "gopls")
    assert (await servers.serving(project / "a.go"))[1] == [], "as it was looked for a moment ago"
    monkeypatch.setattr(lsp_servers, "time", SimpleNamespace(monotonic=lambda: 122.0))
    assert len((await servers.serving(project / "a.go"))[1]) == 1
    servers.stop()
    await servers.stopped()


async def test_who_waits_for_a_server_s_first_start_may_be_cancelled(project: Path) -> None:
    program(project.parent / "bin" / "gopls")
    settings = LspSettings({"PATH": f"{project.parent / 'bin'}"}, OFF, OwnAnnouncements().announce)
    servers = LanguageServers(SandboxWorkspace(project, Path("/")), settings, None)
    servers.start()
    _, (server,) = await servers.serving(project / "a.go")
    asking = asyncio.create_task(server.symbols("", asyncio.get_running_loop().time() + 60))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    servers.stop()
    await servers.stopped()
