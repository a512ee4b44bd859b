"""The program that a client asks to run in a terminal, in the sandbox if that is on; and the shells of this machine."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import Program, SandboxWorkspace
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.terminal import PtyInput, PtyShell
from app.tools.process import UNSUITABLE_SHELLS
from app.util.project_files import resolved

_SHELLS_FILE = Path("/etc/shells")
_WITHOUT_THAT_FILE = ("/bin/bash", "/bin/zsh", "/bin/sh")


def installed_shells() -> list[PtyShell]:
    return [
        PtyShell(path=path, name=(name := PurePath(path).name), acceptable=name not in UNSUITABLE_SHELLS)
        for path in dict.fromkeys(_shell_paths())
        if os.access(path, os.X_OK)
    ]


def is_shell(program: str) -> bool:
    return PurePath(program).name.endswith("sh")


def _shell_paths() -> Iterator[str]:
    try:
        lines = _SHELLS_FILE.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        yield from _WITHOUT_THAT_FILE
        return
    yield from (line for line in map(str.strip, lines) if line.startswith("/"))


_OWN_VARIABLES = {"TERM": "xterm-256color", "OPENCODE_TERMINAL": "1"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETSID = ("/usr/bin/setsid", "--ctty")
"""Makes the program the leader of a session that has the terminal: Ctrl-C then ends the program, and not bubblewrap."""


@dataclass(frozen=True, slots=True)
class TerminalProgram:
    """`command`, `args` and `cwd` as clients see them."""

    command: str
    args: list[str]
    cwd: Path
    program: Program


class TerminalPrograms:
    """`shell` and `environment` are those of the model's commands."""

    def __init__(self, sandbox: Sandbox, shell: str, environment: Callable[[], Mapping[str, str]]) -> None:
        self._sandbox = sandbox
        self._shell = shell
        self._environment = environment

    def make(self, wanted: PtyInput, workspace: SandboxWorkspace, may_enter: Callable[[str], bool]) -> TerminalProgram:
        """`may_enter(path)`: may the user work in this resolved directory? Blocks. Raises BadRequest, DirectoryForbidden."""
        command = wanted.command or self._shell
        args = wanted.args or (["-l"] if is_shell(command) else [])
        _check_words([command, *args], wanted.env)
        cwd = _working_directory(wanted.cwd, workspace, may_enter)
        environment = {**self._environment(), **_OWN_VARIABLES}
        if not self._sandbox.is_on:
            _require_program(command, cwd, environment)
        argv = [*(_SETSID if self._sandbox.is_on else ()), command, *args]
        try:
            program = self._sandbox.program(argv, workspace, {**environment, **wanted.env}, cwd=cwd)
        except OSError as error:
            raise BadRequest(f"{workspace.directory} cannot be used: {error.strerror}", ["directory"]) from error
        return TerminalProgram(command, args, cwd, program)


def _check_words(words: list[str], variables: Mapping[str, str]) -> None:
    if any("\0" in word for word in words):
        raise BadRequest("command and args must not contain NUL", ["args"])
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            message = "A variable's name must be letters, digits and _, not starting with a digit; its value must have no NUL."
            raise BadRequest(message, ["env", name])


def _working_directory(wanted: str | None, workspace: SandboxWorkspace, may_enter: Callable[[str], bool]) -> Path:
    if wanted and "\0" in wanted:
        raise BadRequest("cwd must not contain NUL", ["cwd"])
    path = Path(os.path.normpath(workspace.directory / (wanted or ".")))
    real = Path(resolved(path))
    if not any(real.is_relative_to(each) for each in workspace.real_directories()) or not may_enter(str(real)):
        raise DirectoryForbidden(f"{path} is not in {workspace.directory}: name it as the request's directory.", directory=wanted)
    if not os.path.isdir(real):  # noqa: PTH112  False for a name that is too long, too
        raise BadRequest(f"There is no directory {path}", ["cwd"], wanted)
    return path


def _require_program(command: str, cwd: Path, environment: Mapping[str, str]) -> None:
    named = str(cwd / command) if "/" in command else command
    if shutil.which(named, path=environment.get("PATH")) is None:
        raise BadRequest(f"There is no program {command}", ["command"], command)
