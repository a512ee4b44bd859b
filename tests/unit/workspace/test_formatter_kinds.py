"""Which formatters a project uses, and which program each is."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.project.config.flags import Flags
from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import FormatterConfig
from app.workspace.formatters import Formatters

OXFMT = Flags(experimental_oxfmt=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
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
    (project / "ruff.toml").write_text("")
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
    (project / "package.json").write_text(json.dumps({"devDependencies": {"oxfmt": "1"}}))
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
