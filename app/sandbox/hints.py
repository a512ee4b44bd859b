"""What the model is told where a command failed because of the sandbox, so that it asks for what it needs."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from app.sandbox.program import Program
from app.sandbox.scope import SandboxScope

_ASKED = (
    "name its absolute path plainly in the command: the permission external_directory is asked then, and opens it for that "
    "command. The user can open it for all commands by `sandbox.{kind}` in ~/.config/opencode/opencode.json."
)
_WRITE = "The command ran in a sandbox, where only the project can be written. To write elsewhere, " + _ASKED.format(kind="write")
_READ = "The command ran in a sandbox, which hides {path}. To reach it, " + _ASKED.format(kind="read")
_BUSY = "In the sandbox a single file outside the project is open to be changed, not to be replaced. Write into it instead."
_NETWORK = "The command ran in a sandbox without network (`sandbox.network` in the configuration)."

_NO_NETWORK = re.compile(r"Network is unreachable|ould not resolve host|failure in name resolution|ENOTFOUND|EAI_AGAIN")
_NOT_FOUND = re.compile(r"No such file or directory|Directory nonexistent")
_PATH = re.compile(r"(?:\.\./|/)[^\s'\":,;()]+")
_SHOWN = tuple(map(Path, ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/proc", "/dev"]))
_READ_CHARACTERS = 20_000


def hint(program: Program, output: str, code: int | None) -> str | None:
    """None where the output does not look like it. A command that hides its exit code (`|| true`) still shows a failed write."""
    scope, end = program.scope, output[-_READ_CHARACTERS:]
    if scope is None:
        return None
    if "Read-only file system" in end:
        return _WRITE
    if not code:
        return None
    if "Device or resource busy" in end:
        return _BUSY
    if not scope.network and _NO_NETWORK.search(end):
        return _NETWORK
    hidden = next(_hidden(scope, end), None)
    return _READ.format(path=hidden) if hidden else None


def _hidden(scope: SandboxScope, output: str) -> Iterator[Path]:
    """Paths that were not found and that the sandbox does not show. Whether they exist is not looked at, nor told."""
    shown = (*_SHOWN, *scope.write, *scope.read, *(name for _, name in scope.spellings))
    names = (name for line in output.splitlines() if _NOT_FOUND.search(line) for name in _PATH.findall(line))
    paths = (Path(os.path.normpath(scope.directory / name)) for name in names)
    return (path for path in paths if not any(path.is_relative_to(directory) for directory in shown))
