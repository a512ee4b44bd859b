"""A project whose commands run in the sandbox, and what lies around it that they must not reach."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandboxed import sandbox_of

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.config import SandboxConfig
from app.settings import Settings
from app.tools import process

SECRET = "marked-secret"


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
        secrets = [base / name for name in names]
        for secret in secrets:
            secret.parent.mkdir(parents=True, exist_ok=True)
            secret.write_text(f"{SECRET}\n")
        (base / "home" / "project").mkdir()
        subprocess.run(["git", "init", "-q"], cwd=base / "home" / "project", check=True)
        return cls(base, sandbox_of(Settings(data_dir=base / "data", roots=str(base / "others"))), secrets)

    def open_again(self, **environment: str) -> None:
        """As a server does that is started anew."""
        settings = Settings(data_dir=self.base / "data", roots=str(self.base / "others"))
        self.sandbox = sandbox_of(settings, {**os.environ, **environment})

    def workspace_of(self, directory: Path, worktree: Path | None = None) -> SandboxWorkspace:
        return SandboxWorkspace(directory, worktree or directory)

    def workspace(self, **config: object) -> SandboxWorkspace:
        return SandboxWorkspace(self.project, self.project, SandboxConfig.model_validate(config))

    async def run(
        self, command: str, *, granted: Sequence[Path] = (), timeout: float = 60, workspace: SandboxWorkspace | None = None
    ) -> CommandEnd:
        chunks: list[bytes] = []
        program = self.sandbox.program(
            ["/bin/bash", "-c", command], workspace or self.workspace(), dict(os.environ), granted=granted
        )
        ended = await process.run(program, timeout=timeout, on_output=chunks.append)
        return CommandEnd(ended.code, b"".join(chunks).decode(errors="replace"))
