"""The one place that starts git. Commands, members and models can write the files that git works with, so git runs in the
sandbox, without network: it sees the directories that it is given and, read-only, the system.

A thread with `subprocess` takes 1.5 ms to start git, an asyncio subprocess 5 ms (under uvloop). That matters because a snapshot
is taken before every step.
"""

import asyncio
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from app.project.sandbox.git_repository import GitRepository, problem_of
from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import NO_WALLS, Program, Walls
from app.util import environment, processes
from app.util.git_obstacles import checkout_obstacle
from app.util.project_files import DirectoryReplaced, HeldDirectory, warn_once
from app.util.shared_threads import SharedThreads

log = logging.getLogger(__name__)

_THREADS = SharedThreads(32, per_user=8, per_directory=4, name="git")
_KEPT_VARIABLES = {
    "GIT_EXEC_PATH",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
}
WITHOUT_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
"""The variables for git that knows neither the user nor the machine."""
NOT_STARTED = 127
TIMED_OUT = 124
TOO_MUCH_OUTPUT = 123
_KILL_AFTER_SECONDS = 2.0
_PROGRAMS = ("core.editor", "core.pager", "core.sshCommand", "core.askPass", "gpg.program", "credential.helper")
"""Settings that name a program for git to run. The commands that the server runs need none of them."""


@dataclass(frozen=True)
class GitResult:
    """`code` is git's exit status, negative for a signal, or NOT_STARTED, TIMED_OUT or TOO_MUCH_OUTPUT."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace").strip()

    @property
    def names(self) -> list[str]:
        """The names that a command with `-z` has printed. They may contain any byte but NUL, which ends each."""
        return self.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@dataclass(frozen=True)
class Git:
    """Git as it runs in one place.

    `directory`: where it runs. `also`: other directories that it may write; it sees nothing else that can be written.
    `repository`: the one that it works with; a `.git` written later leads to no other. None if git needs none.
    `is_given_repository`: False if git looks for the repository itself, as on a command line.
    `walls`: files of other users, which git does not see."""

    sandbox: Sandbox
    directory: HeldDirectory
    also: tuple[HeldDirectory, ...] = ()
    repository: GitRepository | None = None
    is_given_repository: bool = True
    walls: Walls = field(default=NO_WALLS, compare=False)

    async def run(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout: float = 60,
        pass_fds: Sequence[int] = (),
        max_bytes: int | None = None,
    ) -> GitResult:
        """Runs `git *args`, with `env` added to the safe environment. Never raises for a failure of git; kills it when cancelled.
        `max_bytes`: for a command that may print any amount; with TOO_MUCH_OUTPUT, `stdout` is its first `max_bytes`."""
        variables = safe_environment()
        if (found := self.repository) is not None and self.is_given_repository:
            variables |= {"GIT_DIR": str(found.git_dir), "GIT_COMMON_DIR": str(found.common_dir)}
            variables["GIT_WORK_TREE"] = str(found.checkout)
        variables |= env or {}
        child = _GitProcess(lambda: self._program(args, variables, cwd or self.directory.path), args, pass_fds)
        running = asyncio.get_running_loop().run_in_executor(_THREADS, child.run, stdin, max_bytes, timeout)
        try:
            return await asyncio.shield(running)
        except OSError as error:
            return GitResult(NOT_STARTED, b"", f"git could not be started: {error}")
        except asyncio.CancelledError:
            child.kill()
            await asyncio.wait([running])
            raise

    def with_access_to(self, *directories: Path) -> "Git":
        """Git that may also write these directories. Raises OSError."""
        return replace(self, also=(*self.also, *map(HeldDirectory, directories)))

    async def without_filters(self) -> dict[str, str]:
        """The variables that switch off the filters that the repository's own configuration names."""
        wanted = ["config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"]
        fields = (await self.run(*wanted)).names
        own = [name for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")]
        required = {f"{name.rpartition('.')[0]}.required": "false" for name in own}
        return overrides([*((name, "") for name in own), *required.items()])

    def _program(self, args: Sequence[str | Path], variables: Mapping[str, str], cwd: Path) -> Program:
        """Raises OSError."""
        if reason := self._obstacle():
            warn_once(log, f"git is not run in {cwd}: {reason}")
            raise OSError(reason)
        words = ["git", *(os.fspath(arg) for arg in args)]
        return self.sandbox.server_program(words, variables, cwd, [self.directory, *self.also], walls=self.walls)

    def _obstacle(self) -> str | None:
        if self.repository is not None:
            return problem_of(self.repository, is_walled=self.sandbox.is_on)
        refused = checkout_obstacle(self.directory.real)
        return str(refused) if refused else None


def git_of(sandbox: Sandbox, repository: GitRepository, walls: Walls = NO_WALLS) -> Git:
    """Git for a checkout. Raises OSError if the checkout is gone, DirectoryReplaced if it is a link by now."""
    checkout, *outside = map(HeldDirectory, (repository.checkout, *repository.outside))
    for held in (checkout, *outside):
        if held.real != held.path:
            raise DirectoryReplaced(held.path)
    return Git(sandbox, checkout, tuple(outside), repository, walls=walls)


def overrides(settings: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """The variables that set `settings` over all configuration. Always included: settings that
    stop a repository's configuration, which commands in the project can write, from naming programs for git to run."""
    programs = [(name, "") for name in _PROGRAMS]
    listed = [("core.fsmonitor", "false"), ("core.hooksPath", os.devnull), *programs, *settings]
    keys = {f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(listed)}
    values = {f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(listed)}
    return {"GIT_CONFIG_COUNT": str(len(listed)), **keys, **values}


# A partial clone may name a program that fetches what is missing, so no protocol is allowed.
_FIXED = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C", **overrides()}


def safe_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that git needs, without those that would select another repository, ask for input or translate messages.

    The user's own configuration applies (`safe.directory` above all); a caller that wants none sets GIT_CONFIG_GLOBAL.
    """
    return environment.minimal(inherited, also=_KEPT_VARIABLES) | _FIXED


class _GitProcess:
    """A git process and its process group. Another thread may kill it at any time, even before it starts."""

    def __init__(self, make: Callable[[], Program], args: Sequence[str | Path], pass_fds: Sequence[int]) -> None:
        self._make = make
        self._shown = " ".join(["git", *map(str, args)])
        self._pass_fds = pass_fds
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_confined = False
        self._killed = False

    def run(self, stdin: bytes, max_bytes: int | None, timeout: float) -> GitResult:
        """Kills git when it prints more. Its input and messages are files, because the output alone is read meanwhile. Raises
        OSError if git cannot be started."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as messages:
            given.write(stdin)
            given.seek(0)
            with self._start(given, messages) as process:
                assert process.stdout is not None
                deadline = threading.Timer(timeout, self.kill)
                deadline.start()
                out = process.stdout.read(-1 if max_bytes is None else max_bytes + 1)
                if is_too_much := max_bytes is not None and len(out) > max_bytes:
                    self.kill()
            deadline.cancel()
            messages.seek(0)
            message = messages.read().decode("utf-8", "replace").strip()
        if is_too_much:
            return GitResult(TOO_MUCH_OUTPUT, out[:max_bytes], message)
        if self._killed:
            return GitResult(TIMED_OUT, b"", f"{self._shown} took longer than {timeout:g} s")
        return GitResult(process.returncode, out, message)

    def _start(self, stdin: IO[bytes], stderr: IO[bytes]) -> "subprocess.Popen[bytes]":
        program = self._make()
        with self._guard:
            if self._killed:
                raise OSError("it was cancelled")
            self._is_confined = program.is_confined
            self._process = subprocess.Popen(
                program.argv,
                cwd=program.cwd,
                env=program.env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=self._pass_fds,
                start_new_session=True,
            )
            return self._process

    def kill(self) -> None:
        """Sends SIGTERM first, so that git removes its lock files and half-written objects. Not to bubblewrap: at its end
        everything in the sandbox is killed at once."""
        with self._guard:
            self._killed = True
            if self._process is None or self._process.poll() is not None:
                return
            with suppress(ProcessLookupError):  # its thread has reaped it, but `poll` does not know that yet
                signal_all = processes.signal_members if self._is_confined else os.killpg
                signal_all(self._process.pid, signal.SIGTERM)
            deadline = threading.Timer(_KILL_AFTER_SECONDS, self._force_kill, [self._process])
            deadline.daemon = True
            deadline.start()

    def _force_kill(self, process: "subprocess.Popen[bytes]") -> None:
        with self._guard, suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
