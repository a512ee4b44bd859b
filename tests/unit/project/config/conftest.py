import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.project.config.flags import Flags
from app.project.config.loader import LoadedConfig, load


class World(SimpleNamespace):
    """A home, an organisation-free machine, and a worktree with a directory two levels down."""

    home: Path
    global_dir: Path
    outer: Path
    worktree: Path
    directory: Path

    def write(self, path: Path, content: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def load(self, env: dict[str, str] | None = None, remote: list[dict[str, Any]] | None = None) -> LoadedConfig:
        return load(self.directory, self.worktree, Flags.from_env(env or {}), remote, env or {})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in [name for name in os.environ if name.startswith("OPENCODE_")]:
        monkeypatch.delenv(name)
    home, worktree = tmp_path / "home", tmp_path / "outer" / "work"
    directory = worktree / "packages" / "web"
    directory.mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return World(
        home=home, global_dir=home / ".config" / "opencode", outer=worktree.parent, worktree=worktree, directory=directory
    )
