"""A program as it is started. Made by `Sandbox.program`, which confines it; directly only for the server's own programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.sandbox.scope import SandboxScope


@dataclass(frozen=True, slots=True)
class Program:
    """`env` None: the environment of the server. `scope` None: it is not confined."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] | None = None
    scope: SandboxScope | None = None

    @property
    def is_confined(self) -> bool:
        """It runs in a PID namespace, which ends with it."""
        return self.scope is not None
