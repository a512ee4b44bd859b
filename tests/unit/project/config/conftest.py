import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from git_files import put_file

from app.project.config.flags import Flags
from app.project.config.loader import LoadedConfig, load
from app.util.project_files import ProjectBounds


@dataclass
class World:
    """A home, an organisation-free machine, and a worktree with a directory two levels down."""

    home: Path
    worktree: Path
    directory: Path

    @property
    def global_dir(self) -> Path:
        return self.home / ".config" / "opencode"

    @property
    def outer(self) -> Path:
        return self.worktree.parent

    def write(self, path: Path, content: Any) -> Path:
        return put_file(path, content if isinstance(content, str) else json.dumps(content))

    def project(self, config: Any) -> Path:
        return self.write(self.directory / "opencode.json", config)

    def user(self, config: Any) -> Path:
        return self.write(self.global_dir / "opencode.json", config)

    def load(self, env: dict[str, str] | None = None, remote: list[dict[str, Any]] | None = None) -> LoadedConfig:
        return load(self.directory, self.worktree, Flags.from_env(env or {}), remote, env or {})

    def distrusted(self) -> LoadedConfig:
        bounds = replace(ProjectBounds.of(self.directory, self.worktree), trusted=False)
        return load(self.directory, self.worktree, Flags(), bounds=bounds)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    home, worktree = tmp_path / "home", tmp_path / "outer" / "work"
    directory = worktree / "packages" / "web"
    directory.mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return World(home, worktree, directory)
