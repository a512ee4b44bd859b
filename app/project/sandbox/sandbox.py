"""Makes the command line of every program that runs someone else's words: the model's, a project's, an MCP server's. And hints
for the model when a command has failed because of the sandbox."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from app.project.sandbox.bubblewrap import arguments, numbered, server_arguments
from app.project.sandbox.machine import SandboxUnusable, find_facts, for_own_programs, prefix_of, usable
from app.project.sandbox.scope import (
    NO_WALLS,
    FoundPath,
    MachineFacts,
    Program,
    SandboxScope,
    SandboxWorkspace,
    Walls,
    found_paths,
    may_be_shown,
    opened_for,
    scope_of,
    server_scope,
)
from app.settings import Settings
from app.util.beneath import folder_of
from app.util.data_files import remove_tree
from app.util.project_files import DirectoryReplaced, HeldDirectory, resolved

RETENTION_SECONDS = 7 * 24 * 3600

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
"""A program's message about itself, unlike a line of a log that says so somewhere."""
_WORD = re.compile(r"[^\s'\"‘’`:,;()=]+")
_SHOWN = tuple(map(Path, ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/proc", "/dev"]))
_READ_CHARACTERS = 20_000
_MOST_WORDS = 200
"""So many different words may be paths that are resolved."""


class Sandbox:
    """`machine` None: the sandbox is off, and programs run as they are. `state`: a sentence that says so, and why."""

    def __init__(self, machine: MachineFacts | None, state: str) -> None:
        self._machine = machine
        self._server_machine = machine and for_own_programs(machine)
        self.state = state

    @property
    def is_on(self) -> bool:
        return self._machine is not None

    def program(
        self,
        argv: Sequence[str],
        workspace: SandboxWorkspace,
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        granted: Iterable[Path] = (),
        approved: Iterable[Path] = (),
        shows_named: bool = False,
    ) -> Program:
        """`cwd`: where the program starts, by default the workspace's directory. `granted`: paths outside the project that the
        user allows it; `approved`: directories that they allow every command. `shows_named`: it sees, read-only, what `argv`
        names. Raises OSError if the workspace is gone, DirectoryReplaced if something else stands there, and if its own home and
        /tmp cannot be made."""
        directory = cwd or workspace.directory
        if self._machine is None:
            _require_in_place(workspace.held)
            return Program(argv, directory, env)
        named = _named_by(argv, self._machine, workspace) if shows_named else ()
        scope = scope_of(self._machine, workspace, directory, granted, approved, named)
        assert scope.private is not None
        for name, mode in (("home", 0o700), ("tmp", 0o1777)):
            _make(scope.private / name, mode)
        for base, name in self._machine.own.items():
            _remove_links(scope.private / name, base, (*self._machine.toolchains, *self._machine.git_files, *scope.places))
        inside = _inside(env)
        return Program([*arguments(self._machine, scope, len(inside)), *argv], Path("/"), numbered(inside), scope)

    def server_program(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        directory: Path,
        shown: Sequence[HeldDirectory],
        *,
        read: Iterable[Path] = (),
        walls: Walls = NO_WALLS,
    ) -> Program:
        """A program of the server's own that works with files of others, such as git. It has no network and sees `shown`, and
        `read` beside the system. Raises OSError, DirectoryReplaced."""
        _require_in_place(shown)
        if self._server_machine is None:
            return Program(argv, directory, env)
        scope = server_scope(self._server_machine, directory, shown, read, walls)
        return Program([*server_arguments(self._server_machine, scope), *argv], Path("/"), _inside(env), scope)


def _inside(env: Mapping[str, str]) -> Mapping[str, str]:
    return {**env, "TMPDIR": "/tmp"} if "TMPDIR" in env else env


def _require_in_place(held: Iterable[HeldDirectory]) -> None:
    for one in held:
        if not one.is_in_place():
            raise DirectoryReplaced(one.path)


def _named_by(argv: Sequence[str], machine: MachineFacts, workspace: SandboxWorkspace) -> list[FoundPath]:
    """The files of a configured program outside of the project: where it is installed, and the files and directories that its
    words name. Not files of others, nor keys: judged by where a path leads."""
    program, *words = map(Path, argv)
    installed = {_installation(path, machine.home) for path in (program, Path(os.path.realpath(program)))}
    named = [opened_for(path, machine) for path in words if path.is_absolute() and os.path.exists(path)]  # noqa: PTH110  as there
    found = found_paths([*(installed if program.is_absolute() and program.exists() else ()), *named])
    own = workspace.real_directories()
    return [each for each in found if not _is_in(each.real, own) and _may_be_named(each.real, machine, workspace.walls)]


def _installation(program: Path, home: Path) -> Path:
    """For a Node package all packages beside it, which it may need."""
    parts = program.parts
    return Path(*parts[: parts.index("node_modules") + 1]) if "node_modules" in parts else prefix_of(program.parent, home)


def _may_be_named(real: Path, machine: MachineFacts, walls: Walls) -> bool:
    if _is_in(real, walls.hidden()):
        return False
    is_shown_to_all = _is_in(real, (*machine.system, *machine.toolchains))
    return is_shown_to_all or (may_be_shown(real, machine) and walls.admits(str(real)))


def remove_unused(data_dir: Path, now: float) -> None:
    """Removes own homes and /tmp that no command has used for a week. `now` in seconds. Leaves entries that are no directories;
    another server may remove one meanwhile."""
    for private in (data_dir / "sandbox").glob("*"):
        with suppress(FileNotFoundError, NotADirectoryError):
            if max(part.stat().st_mtime for part in (private, *private.iterdir())) < now - RETENTION_SECONDS:
                remove_tree(private)


OFF = Sandbox(None, "Sandbox: off")


def open_sandbox(settings: Settings, environment: Mapping[str, str] = os.environ) -> Sandbox:
    """Raises SandboxUnusable if the settings require a sandbox that does not work."""
    if settings.sandbox == "off":
        return Sandbox(None, "Sandbox: off (OPENSESSION_SANDBOX=off): commands reach what this user reaches")
    facts = find_facts(Path.home(), settings.data_dir, settings.root_dirs, environment)
    try:
        machine = usable(facts)
    except SandboxUnusable as error:
        if settings.sandbox == "require":
            raise SandboxUnusable(f"OPENSESSION_SANDBOX=require, but the sandbox does not work here: {error}") from error
        return Sandbox(None, f"Sandbox: off, commands reach what this user reaches: {error}")
    return Sandbox(machine, "Sandbox: on (bubblewrap): commands reach the project and, read-only, the system")


def _make(directory: Path, mode: int) -> None:
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(mode)
    os.utime(directory)


def _remove_links(own: Path, base: Path, mounted: Iterable[Path]) -> None:
    """Removes symbolic links that commands have left in their own home or /tmp on the way to a mount. bubblewrap follows them as
    it makes the mount, and would make directories and files outside. `base`: where commands see `own`."""
    for place in mounted:
        parts = place.relative_to(base).parts if base in place.parents else ()
        for path in (own.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)):
            with suppress(FileNotFoundError, NotADirectoryError), folder_of(path, own) as folder:
                if stat.S_ISLNK(os.lstat(path.name, dir_fd=folder).st_mode):
                    os.unlink(path.name, dir_fd=folder)


def hint(program: Program, output: str, code: int | None) -> str | None:
    """None if the output shows no such failure. It may show one though the exit code is hidden (`|| true`, `| head`)."""
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
    """Paths that were not found and that the sandbox does not show, also by a link of the project. Whether they exist is neither
    looked at nor told."""
    shown = (*_SHOWN, *scope.write, *scope.read, *(name for _, name in scope.spellings))
    words = dict.fromkeys(word for line in output.splitlines() if not_found.search(line) for word in _WORD.findall(line))
    named = islice((word for word in words if not word.startswith(("//", "~"))), _MOST_WORDS)
    paths = (Path(os.path.normpath(scope.directory / word)) for word in named)
    return (path for path in paths if not _is_in(path, shown) or not _is_in(Path(resolved(path)), shown))


def _is_in(path: Path, directories: Iterable[Path | str]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)
