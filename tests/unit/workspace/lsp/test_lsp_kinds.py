"""Which language servers there are for a project, where each works, and which program it is."""

from pathlib import Path
from typing import Any

import pytest

from app.project.config.flags import Flags
from app.schema.config import LspConfig
from app.workspace.lsp.kinds import ServerKind, configured

TY = Flags(experimental_lsp_ty=True)


def kinds(config: dict[str, Any] | None = None, flags: Flags = Flags()) -> dict[str, ServerKind]:
    entries = {name: LspConfig.model_validate(entry) for name, entry in (config or {}).items()}
    return {kind.id: kind for kind in configured(entries, flags)}


def put(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


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
    put(tmp_path / "a" / inner)
    assert kind.root_of(file, tmp_path, tmp_path) == tmp_path / "a"
    put(tmp_path / outer, text)
    assert kind.root_of(file, tmp_path, tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [("eslint", "eslint/package.json"), ("typescript", "typescript/lib/tsserver.js"), ("astro", "typescript/lib/tsserver.js")],
)
def test_a_server_of_a_library_is_there_where_the_project_has_the_library(tmp_path: Path, name: str, file: str) -> None:
    assert kinds()[name].initialization(tmp_path / "a", tmp_path) is None
    put(tmp_path / "node_modules" / file)
    assert kinds()[name].initialization(tmp_path / "a", tmp_path)


def test_a_configured_program_is_not_the_projects_and_gets_what_is_configured(tmp_path: Path) -> None:
    put(tmp_path / "node_modules/.bin/eslint-server", mode=0o755)
    path = str(put(tmp_path / "bin" / "eslint-server", mode=0o755).parent)
    put(tmp_path / "node_modules/eslint/package.json")
    kind = kinds({"eslint": {"command": ["eslint-server", "--x"]}})["eslint"]
    assert kind.command(tmp_path, tmp_path, path) == [f"{path}/eslint-server", "--x"]
    assert kind.command(tmp_path, tmp_path, "") == ["eslint-server", "--x"]
    assert kind.initialization(tmp_path, tmp_path)["validate"] == "on"  # type: ignore[index]
    own = kinds({"eslint": {"command": ["./node_modules/.bin/eslint-server"], "initialization": {"a": 1}}})["eslint"]
    assert own.command(tmp_path, tmp_path, "") == [str(tmp_path / "node_modules/.bin/eslint-server")]
    assert own.initialization(tmp_path, tmp_path) == {"a": 1}


def test_a_well_known_program_is_the_projects_before_any_other(tmp_path: Path) -> None:
    own = put(tmp_path / "node_modules/.bin/oxlint", mode=0o755)
    other = put(tmp_path / "bin" / "oxc_language_server", mode=0o755)
    kind = kinds()["oxlint"]
    assert kind.command(tmp_path / "a", tmp_path, "") == [str(own), "--lsp"]
    assert kind.command(tmp_path / "a", tmp_path, str(other.parent)) == [str(other)]
