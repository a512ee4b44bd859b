"""Runs git in a safe environment and in threads; a cancelled command is killed.

A thread with `subprocess` takes 1.5 ms to start git, an asyncio subprocess 5 ms (under uvloop). That matters because a
snapshot is taken before every step.
"""

import asyncio
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from app.util import environment
from app.util.dataclass import dataclass
from app.util.git_obstacles import checkout_obstacle, obstacle
from app.util.project_files import warn_once

log = logging.getLogger(__name__)

_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="git")
_KEPT_VARIABLES = {
    "GIT_EXEC_PATH",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
}
NOT_STARTED = 127
TIMED_OUT = 124
TOO_MUCH_OUTPUT = 123


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


async def git(
    args: Sequence[str | Path],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = 60,
    pass_fds: Sequence[int] = (),
) -> GitResult:
    """Runs `git *args` in `cwd`, with `env` added to the safe environment. Never raises for a failure of git; kills it when
    cancelled."""
    child = _GitProcess(args, cwd, {**safe_environment(), **(env or {})}, pass_fds)
    return await _in_thread(child, lambda: child.run(stdin, timeout))


async def git_at_most(
    max_bytes: int, args: Sequence[str | Path], cwd: Path, *, env: Mapping[str, str] | None = None, timeout: float = 60
) -> GitResult:
    """The same for a command that may print any amount: with TOO_MUCH_OUTPUT, `stdout` is its first `max_bytes`."""
    child = _GitProcess(args, cwd, {**safe_environment(), **(env or {})}, ())
    return await _in_thread(child, lambda: child.run_at_most(max_bytes, timeout))


async def _in_thread(child: "_GitProcess", run: Callable[[], GitResult]) -> GitResult:
    running = asyncio.get_running_loop().run_in_executor(_THREADS, run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        child.kill()
        await asyncio.wait([running])
        raise


def safe_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that git needs, without those that would select another repository, ask for input or translate messages.

    The user's own configuration applies (`safe.directory` above all); a caller that wants none sets GIT_CONFIG_GLOBAL.
    """
    kept = {name: value for name, value in inherited.items() if name in _KEPT_VARIABLES}
    # A repository of which parts are missing may name a program to fetch them with: no protocol is allowed.
    fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C"}
    return {**environment.minimal(inherited), **kept, **fixed, **overrides()}


def overrides(settings: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """The variables that set `settings` over all configuration. Always among them: a repository's own configuration, which its
    commands can write, names no program for git to run here."""
    listed = [("core.fsmonitor", "false"), ("core.hooksPath", os.devnull), *settings]
    keys = {f"GIT_CONFIG_KEY_{at}": name for at, (name, _) in enumerate(listed)}
    values = {f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(listed)}
    return {"GIT_CONFIG_COUNT": str(len(listed)), **keys, **values}


async def without_filters(checkout: Path) -> dict[str, str]:
    """The variables with which git runs none of the filters that the repository's own configuration names."""
    wanted = ["config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"]
    fields = (await git(wanted, checkout)).stdout.decode("utf-8", "surrogateescape").split("\0")
    own = [name for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")]
    required = {f"{name.rpartition('.')[0]}.required": "false" for name in own}
    return overrides([*((name, "") for name in own), *required.items()])


class _GitProcess:
    """A git process and its process group. Another thread may kill it at any time, even before it starts."""

    def __init__(self, args: Sequence[str | Path], cwd: Path, env: Mapping[str, str], pass_fds: Sequence[int]) -> None:
        self._command = ["git", *(os.fspath(arg) for arg in args)]
        self._cwd = cwd
        self._env = env
        self._pass_fds = pass_fds
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self, stdin: bytes, timeout: float) -> GitResult:
        process = self._started()
        if isinstance(process, GitResult):
            return process
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            process.communicate()
            return self._timed_out(timeout)
        return GitResult(process.returncode, out, err.decode("utf-8", "replace").strip())

    def run_at_most(self, max_bytes: int, timeout: float) -> GitResult:
        """Kills git when it prints more. Its messages go to a file: nobody reads them while its output is read."""
        with tempfile.TemporaryFile() as messages:
            process = self._started(messages)
            if isinstance(process, GitResult):
                return process
            deadline = threading.Timer(timeout, self.kill)
            deadline.start()
            with process:
                assert process.stdin is not None and process.stdout is not None
                process.stdin.close()
                out = process.stdout.read(max_bytes + 1)
                if len(out) > max_bytes:
                    self.kill()
            deadline.cancel()
            messages.seek(0)
            message = messages.read().decode("utf-8", "replace").strip()
        if len(out) > max_bytes:
            return GitResult(TOO_MUCH_OUTPUT, out[:max_bytes], message)
        return (
            self._timed_out(timeout)
            if deadline.finished.is_set() and self._killed
            else GitResult(process.returncode, out, message)
        )

    def _timed_out(self, timeout: float) -> GitResult:
        return GitResult(TIMED_OUT, b"", f"{' '.join(self._command)} took longer than {timeout:g} s")

    def _started(self, stderr: "int | IO[bytes]" = subprocess.PIPE) -> "subprocess.Popen[bytes] | GitResult":
        try:
            refused = checkout_obstacle(self._cwd) if "GIT_DIR" in self._env else obstacle(self._cwd)
            if refused is not None:
                warn_once(log, f"git is not run in {self._cwd}: {refused}")
                raise refused
            process = self._start(stderr)
        except OSError as error:
            return GitResult(NOT_STARTED, b"", f"git could not be started: {error}")
        return process or GitResult(-signal.SIGTERM, b"", "cancelled")

    def _start(self, stderr: "int | IO[bytes]" = subprocess.PIPE) -> "subprocess.Popen[bytes] | None":
        with self._guard:
            if self._killed:
                return None
            self._process = subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=self._pass_fds,
                start_new_session=True,
            )
            return self._process

    def kill(self) -> None:
        """Sends SIGTERM rather than SIGKILL, so that git removes its lock files and half-written objects."""
        with self._guard:
            self._killed = True
            if self._process is not None and self._process.poll() is None:
                with suppress(ProcessLookupError):  # its thread has reaped it, but `poll` does not know that yet
                    os.killpg(self._process.pid, signal.SIGTERM)
