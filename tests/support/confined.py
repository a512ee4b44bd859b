"""A project whose commands run in the sandbox, and what lies around it that they must not reach."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from git_files import put_file
from sandboxed import sandbox_of

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import SandboxConfig
from app.settings import Settings
from app.tools import process

SECRET = "marked-secret"


def settings(base: Path) -> Settings:
    return Settings(data_dir=base / "data", roots=str(base / "others"))


@dataclass(frozen=True)
class CommandEnd:
    """`code` is None if it took too long."""

    code: int | None
    output: str


@dataclass
class Confined:
    """`secrets` are files outside of the project, each with SECRET in it."""

    base: Path
    sandbox: Sandbox
    secrets: Sequence[Path]

    @property
    def project(self) -> Path:
        return self.base / "home" / "project"

    @classmethod
    def make(cls, base: Path, monkeypatch: pytest.MonkeyPatch) -> "Confined":
        """HOME is a directory below `base` from now on."""
        monkeypatch.setenv("HOME", str(base / "home"))
        names = ("home/.ssh/id_rsa", "home/notes", "data/auth.json", "data/opensession.db", "others/project/.env", "beside/file")
        for secret in (secrets := [base / name for name in names]):
            put_file(secret, f"{SECRET}\n")
        subprocess.run(["git", "init", "-q", base / "home" / "project"], check=True)
        return cls(base, sandbox_of(settings(base)), secrets)

    def open_again(self, **environment: str) -> None:
        """As a server does that is started anew."""
        self.sandbox = sandbox_of(settings(self.base), {**os.environ, **environment})

    def workspace_of(self, directory: Path, worktree: Path | None = None) -> SandboxWorkspace:
        return SandboxWorkspace(directory, worktree or directory)

    def workspace(self, **config: object) -> SandboxWorkspace:
        return SandboxWorkspace(self.project, self.project, SandboxConfig.model_validate(config))

    async def run(
        self, command: str, *, granted: Sequence[Path] = (), timeout: float = 60, workspace: SandboxWorkspace | None = None
    ) -> CommandEnd:
        chunks, argv = [], ["/bin/bash", "-c", command]
        program = self.sandbox.program(argv, workspace or self.workspace(), dict(os.environ), granted=granted)
        ended = await process.run(program, timeout=timeout, on_output=chunks.append)
        return CommandEnd(ended.code, b"".join(chunks).decode(errors="replace"))
