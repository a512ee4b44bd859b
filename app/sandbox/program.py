"""A program as it is started. Made by `Sandbox.program`, which confines it; directly only for the server's own programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Program:
    """`env` None: the environment of the server. `is_confined`: it runs in a PID namespace, which ends with it."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] | None = None
    is_confined: bool = False
