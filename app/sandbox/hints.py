"""What the model is told where a command failed because of the sandbox, so that it asks for what it needs."""

import os
import re
from collections.abc import Iterable, Iterator
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
_NOT_FOUND = re.compile(r"No such file|Directory nonexistent|ENOENT|can't cd to|NoSuchFile", re.IGNORECASE)
_ENDS_IN_NOT_FOUND = re.compile(rf"^[^\s:]+: .*({_NOT_FOUND.pattern})( or directory$|$| /)", re.IGNORECASE)
"""What a program says of itself, unlike a line of a log that says so somewhere."""
_WORD = re.compile(r"[^\s'\"‘’`:,;()=]+")
_SHOWN = tuple(map(Path, ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/proc", "/dev"]))
_READ_CHARACTERS = 20_000


def hint(program: Program, output: str, code: int | None) -> str | None:
    """None where the output does not look like it. A command that hides its exit code (`|| true`, `| head`) still shows it."""
    scope, end = program.scope, output[-_READ_CHARACTERS:]
    if scope is None:
        return None
    if "Read-only file system" in end:
        return _WRITE
    if code and "Device or resource busy" in end:
        return _BUSY
    if code and not scope.network and _NO_NETWORK.search(end):
        return _NETWORK
    hidden = next(_hidden(scope, end, _NOT_FOUND if code else _ENDS_IN_NOT_FOUND), None)
    return _READ.format(path=hidden) if hidden else None


def _hidden(scope: SandboxScope, output: str, not_found: re.Pattern[str]) -> Iterator[Path]:
    """Paths that were not found and that the sandbox does not show, also by a link of the project. Whether they exist is not
    looked at, nor told."""
    shown = (*_SHOWN, *scope.write, *scope.read, *(name for _, name in scope.spellings))
    words = (word for line in output.splitlines() if not_found.search(line) for word in _WORD.findall(line))
    paths = (Path(os.path.normpath(scope.directory / word)) for word in words if not word.startswith(("//", "~")))
    return (path for path in paths if not _is_in(path, shown) or not _is_in(Path(os.path.realpath(path)), shown))


def _is_in(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)
